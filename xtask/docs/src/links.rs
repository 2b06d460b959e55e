//! Links of the pages: those that leave docs/ lead to the repository.

use std::path::{Component, Path, PathBuf};

use mdbook_preprocessor::book::{Book, Chapter};
use mdbook_preprocessor::errors::Result;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use pulldown_cmark::{Event, Options, Parser, Tag};

/// The repository's address.
pub(crate) const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Rewrites the links of all pages.
pub(crate) struct Links;

impl Preprocessor for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn run(&self, context: &PreprocessorContext, mut book: Book) -> Result<Book> {
        let repository = context.root.parent().unwrap_or(&context.root);
        book.for_each_chapter_mut(|chapter: &mut Chapter| {
            let folder = chapter
                .source_path
                .as_deref()
                .and_then(Path::parent)
                .unwrap_or(Path::new(""));
            chapter.content = rewritten(
                &chapter.content,
                &Path::new("docs").join(folder),
                repository,
            );
        });
        Ok(book)
    }
}

/// Returns a page with rewritten links. `folder` is the page's folder in the repository.
fn rewritten(page: &str, folder: &Path, repository: &Path) -> String {
    let mut text = page.to_owned();
    let events: Vec<_> = Parser::new_ext(page, Options::all())
        .into_offset_iter()
        .collect();
    // From the end, so the ranges of earlier links remain valid.
    for (event, range) in events.into_iter().rev() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else {
            continue;
        };
        let Some(target) = target(&dest_url, folder, repository) else {
            continue;
        };
        let Some(at) = page[range.clone()].rfind(&format!("]({dest_url}")) else {
            continue;
        };
        let start = range.start + at + "](".len();
        text.replace_range(start..start + dest_url.len(), &target);
    }
    text
}

/// Returns the new target of a link, or `None` if it stays as it is.
fn target(link: &str, folder: &Path, repository: &Path) -> Option<String> {
    if link.contains("://") || link.starts_with(['#', '/']) || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
    let file = normal(&folder.join(path));
    if file.starts_with("docs") {
        // mdBook calls this page index.html.
        return path
            .strip_suffix("README.md")
            .map(|folder| format!("{folder}index.md{anchor}"));
    }
    let kind = if repository.join(&file).is_dir() {
        "tree"
    } else {
        "blob"
    };
    Some(format!(
        "{REPOSITORY}/{kind}/main/{}{anchor}",
        file.display()
    ))
}

/// Returns a relative path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_page(folder: &str, text: &str) -> String {
        rewritten(
            text,
            Path::new(folder),
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        )
    }

    #[test]
    fn links_out_of_docs_lead_to_the_repository() {
        let file = format!("[a]({REPOSITORY}/blob/main/README.md#top)");
        assert_eq!(on_page("docs", "[a](../README.md#top)"), file);
        assert_eq!(on_page("docs/howto", "[a](../../README.md#top)"), file);
        assert_eq!(
            on_page("docs", "[`a`](../crates/)"),
            format!("[`a`]({REPOSITORY}/tree/main/crates)")
        );
    }

    #[test]
    fn links_within_docs_and_to_other_sites_remain() {
        for text in [
            "[a](b.md#c)",
            "[a](#c)",
            "[a](https://example.org/../x)",
            "`[a](../README.md)`",
        ] {
            assert_eq!(on_page("docs", text), text);
        }
        assert_eq!(on_page("docs/howto", "[a](../b.md)"), "[a](../b.md)");
        assert_eq!(
            on_page("docs/howto", "[a](../README.md)"),
            "[a](../index.md)"
        );
    }

    #[test]
    fn each_of_several_links_is_rewritten() {
        let text = "[a](../LICENSE-MIT) b [c](d.md)\n\n| [e](../LICENSE-MIT) |\n|---|\n| [f](../xtask) |\n";
        let expected = text
            .replace(
                "../LICENSE-MIT",
                &format!("{REPOSITORY}/blob/main/LICENSE-MIT"),
            )
            .replace("../xtask", &format!("{REPOSITORY}/tree/main/xtask"));
        assert_eq!(on_page("docs", text), expected);
    }
}
