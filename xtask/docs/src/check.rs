//! Checks the links of a built site, with their anchors.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use xtask::Result;

use crate::links::normal;

/// mdBook's pages that repeat others, and the page of a missing page.
const GENERATED: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// Returns the links to missing files or anchors, and all scripts, styles and pictures of other sites.
pub(crate) fn broken_links(site: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read(site, Path::new(""), &mut pages)?;
    let of = |(path, page): (&PathBuf, &Page)| {
        let broken = page
            .links
            .iter()
            .filter_map(|link| Some((link, objection(link, path, &pages, site)?)));
        broken
            .map(|(link, why)| format!("{}: {}: {why}", path.display(), link.target))
            .collect::<Vec<_>>()
    };
    Ok(pages.iter().flat_map(of).collect())
}

#[derive(Debug, Default, PartialEq)]
struct Page {
    links: Vec<Link>,
    anchors: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
struct Link {
    target: String,
    /// `true` if a browser loads it with the page.
    loaded: bool,
}

/// Reads all pages of a folder, by path.
fn read(site: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result {
    for entry in fs::read_dir(site.join(folder))? {
        let path = folder.join(entry?.file_name());
        let is_page = path
            .extension()
            .is_some_and(|extension| extension == "html");
        if site.join(&path).is_dir() {
            read(site, &path, pages)?;
        } else if is_page && !GENERATED.iter().any(|name| path == Path::new(name)) {
            let page = Page::parse(&fs::read_to_string(site.join(&path))?);
            pages.insert(path, page);
        }
    }
    Ok(())
}

/// Returns the reason why a link doesn't work.
fn objection(
    link: &Link,
    from: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    site: &Path,
) -> Option<&'static str> {
    let target = &link.target;
    if target.contains("://") || target.starts_with("//") {
        return link
            .loaded
            .then_some("the site must work without a network");
    }
    if ["mailto:", "data:", "javascript:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
    {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = path.split('?').next().unwrap_or_default();
    let to = if path.is_empty() {
        from.to_owned()
    } else {
        normal(&from.parent()?.join(path))
    };
    match pages.get(&to) {
        Some(page) if anchor.is_empty() || page.anchors.contains(anchor) => None,
        Some(_) => Some("the page has no such anchor"),
        None if site.join(&to).is_file() => None,
        None => Some("there is no such file"),
    }
}

impl Page {
    fn parse(html: &str) -> Self {
        let input = BufferQueue::default();
        input.push_back(StrTendril::from(html));
        let tokenizer = Tokenizer::new(Tags(RefCell::default()), TokenizerOpts::default());
        // The sink never suspends the tokenizer.
        let _ = tokenizer.feed(&input);
        tokenizer.end();
        tokenizer.sink.0.into_inner()
    }

    fn add(&mut self, tag: &Tag) {
        let is_anchor = &*tag.name == "a";
        for attribute in &tag.attrs {
            let value = attribute.value.to_string();
            match &*attribute.name.local {
                "id" => drop(self.anchors.insert(value)),
                "href" | "src" => self.links.push(Link {
                    target: value,
                    loaded: !is_anchor,
                }),
                _ => {}
            }
        }
    }
}

/// Collects links and anchors from tags.
struct Tags(RefCell<Page>);

impl TokenSink for Tags {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if let Token::TagToken(tag) = token {
            self.0.borrow_mut().add(&tag);
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_pages_and_anchors_are_found() {
        let pages = BTreeMap::from([
            (PathBuf::from("a.html"), Page::parse("<h1 id=top>A</h1>")),
            (PathBuf::from("sub/b.html"), Page::default()),
        ]);
        let of = |target: &str, loaded| {
            let link = Link {
                target: target.to_owned(),
                loaded,
            };
            objection(
                &link,
                Path::new("sub/b.html"),
                &pages,
                Path::new("/nowhere"),
            )
            .is_none()
        };
        for right in [
            "../a.html",
            "../a.html#top",
            "#",
            "https://example.org/",
            "b.html?x",
            "mailto:a@example.org",
        ] {
            assert!(of(right, false), "{right}");
        }
        for wrong in ["a.html", "../a.html#bottom", "#top", "../c.html", "c.svg"] {
            assert!(!of(wrong, false), "{wrong}");
        }
        assert!(!of("https://example.org/font.woff2", true));
    }

    #[test]
    fn only_links_are_followed_on_a_click() {
        let page = Page::parse(
            r#"<a href="x.html" id="one">x</a><img src='y.svg'><script src="z.js"></script>"#,
        );
        let links: Vec<_> = page
            .links
            .iter()
            .map(|link| (&*link.target, link.loaded))
            .collect();
        assert_eq!(links, [("x.html", false), ("y.svg", true), ("z.js", true)]);
        assert!(page.anchors.contains("one"));
    }
}
