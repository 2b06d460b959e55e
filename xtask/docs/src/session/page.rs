//! The commands on a page.
//!
//! In a `console` block, a line that starts with `$ ` is a command, which continues after a backslash. The lines up to the
//! next one are its output. `ifmatch serve` and `ifmatch proxy` start a server. A page may begin with one in an `sh` block, of
//! which nothing else runs here: each says why in a comment in front of it, `<!-- not run: reason -->`, or names the test that runs it,
//! `<!-- run by tests/… -->`.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Without typographic quotes, which would divide the text of headings.
const OPTIONS: Options = Options::all().difference(Options::ENABLE_SMART_PUNCTUATION);

/// The commands on a page, in order.
#[derive(Debug)]
pub(crate) struct Page(Vec<Step>);

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Starts a gateway, by its command line.
    Serve(String),
    /// Runs a command.
    Run {
        command: String,
        expected: Vec<String>,
    },
}

impl Page {
    /// Reads a page. With a `section`, only the part below the heading of this name.
    pub(crate) fn parse(text: &str, section: Option<&str>) -> Self {
        let mut steps = Vec::new();
        let (mut kind, mut within, mut heading) = (None, section.is_none(), None);
        for event in Parser::new_ext(text, OPTIONS) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let title = heading.take();
                    within = section.is_none_or(|section| title.as_deref() == Some(section));
                }
                Event::Text(part) | Event::Code(part) if heading.is_some() => {
                    heading.get_or_insert_default().push_str(&part);
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if within => {
                    kind = Some(info);
                }
                Event::End(TagEnd::CodeBlock) => kind = None,
                Event::Text(code) => match kind.as_deref() {
                    Some("console") => steps.extend(transcript(&code)),
                    // Later ones are alternatives.
                    Some("sh") if steps.is_empty() => steps.extend(code.lines().find_map(server)),
                    _ => {}
                },
                _ => {}
            }
        }
        Self(steps)
    }

    /// Returns the first line of each block of commands that doesn't run, and doesn't say why.
    pub(super) fn unexplained(text: &str) -> Vec<String> {
        let mut unexplained = Vec::new();
        let (mut kind, mut reason, mut has_server) = (None, false, false);
        for event in Parser::new_ext(text, OPTIONS) {
            match event {
                Event::Html(comment)
                    if ["<!-- not run: ", "<!-- run by "]
                        .iter()
                        .any(|why| comment.starts_with(why)) =>
                {
                    reason = true;
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => kind = Some(info),
                Event::End(TagEnd::CodeBlock) => (kind, reason) = (None, false),
                Event::Text(code) if kind.as_deref() == Some("sh") => {
                    let starts = code.lines().find_map(server).is_some() && !has_server;
                    has_server |= starts;
                    unexplained.extend(
                        code.lines()
                            .next()
                            .filter(|_| !starts && !reason)
                            .map(str::to_owned),
                    );
                }
                _ => {}
            }
        }
        unexplained
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }
}

/// Returns the commands of a `console` block.
fn transcript(code: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut continues = false;
    for line in code.lines() {
        let started = line.strip_prefix("$ ");
        match steps.last_mut() {
            Some(Step::Run { command, .. }) if continues => *command = format!("{command}\n{line}"),
            Some(Step::Run { expected, .. }) if started.is_none() => expected.push(line.to_owned()),
            _ => {
                let Some(command) = started else { continue };
                let run = || Step::Run {
                    command: command.to_owned(),
                    expected: Vec::new(),
                };
                steps.push(server(command).unwrap_or_else(run));
            }
        }
        continues = line.ends_with('\\');
    }
    steps
}

/// Returns the step for a line that starts a gateway.
fn server(line: &str) -> Option<Step> {
    let line = line
        .split(" #")
        .next()
        .unwrap_or_default()
        .trim()
        .trim_end_matches(" &");
    ["ifmatch serve ", "ifmatch proxy "]
        .iter()
        .any(|start| line.starts_with(start))
        .then(|| Step::Serve(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# One

```sh
ifmatch serve --data ./data &   # a comment
rm -rf data
```

## Two

```console
$ printf a \\
    b
ab

$ true
```
";

    #[test]
    fn commands_have_their_output() {
        let run = |command: &str, expected: &[&str]| Step::Run {
            command: command.to_owned(),
            expected: expected.iter().map(ToString::to_string).collect(),
        };
        let server = Step::Serve("ifmatch serve --data ./data".to_owned());
        let rest = [run("printf a \\\n    b", &["ab", ""]), run("true", &[])];
        assert_eq!(Page::parse(TEXT, Some("Two")).steps(), rest);
        let [one, two] = rest;
        assert_eq!(Page::parse(TEXT, None).steps(), [server, one, two]);
    }

    #[test]
    fn a_title_may_have_an_apostrophe_and_code() {
        let text = "## One\n```console\n$ one\n```\n## Bob's `two`\n```console\n$ two\n```\n## Three\n```console\n$ three\n```\n";
        let two = Step::Run {
            command: "two".to_owned(),
            expected: Vec::new(),
        };
        assert_eq!(Page::parse(text, Some("Bob's two")).steps(), [two]);
    }

    #[test]
    fn commands_that_do_not_run_say_why() {
        assert_eq!(Page::unexplained(TEXT), [""; 0]);
        let other = "```sh\nifmatch lock URL\n```\n";
        assert_eq!(
            Page::unexplained(&format!("{TEXT}{other}")),
            ["ifmatch lock URL"]
        );
        for reason in [
            "not run: URL stands for yours",
            "run by tests/servers/main.rs",
        ] {
            assert_eq!(
                Page::unexplained(&format!("{TEXT}<!-- {reason} -->\n{other}")),
                [""; 0]
            );
        }
    }
}
