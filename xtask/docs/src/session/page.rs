//! The commands on a page.
//!
//! In a `console` block, a line that starts with `$ ` is a command, which continues after a backslash. The lines up to the
//! next one are its output. `ifmatch serve` and `ifmatch proxy` start a server. A page may begin with one in an `sh` block, of
//! which nothing else runs.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The commands on a page, in order.
#[derive(Debug)]
pub(crate) struct Page(Vec<Step>);

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Starts a gateway, by its command line.
    Serve(String),
    /// Runs a command.
    Run { command: String, expected: Vec<String> },
}

impl Page {
    /// Reads a page. With a `section`, only the part below the heading of this name.
    pub(crate) fn parse(text: &str, section: Option<&str>) -> Self {
        let mut steps = Vec::new();
        let (mut kind, mut within, mut heading) = (None, section.is_none(), false);
        for event in Parser::new_ext(text, Options::all()) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = true,
                Event::End(TagEnd::Heading(_)) => heading = false,
                Event::Text(title) if heading => within = section.is_none_or(|section| *title == *section),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if within => kind = Some(info),
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
                let run = || Step::Run { command: command.to_owned(), expected: Vec::new() };
                steps.push(server(command).unwrap_or_else(run));
            }
        }
        continues = line.ends_with('\\');
    }
    steps
}

/// Returns the step for a line that starts a gateway.
fn server(line: &str) -> Option<Step> {
    let line = line.split(" #").next().unwrap_or_default().trim().trim_end_matches(" &");
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
}
