//! Rules for documents: every page is linked, and every link and command works.

use serde_json::Value;

use crate::repository::{File, Repository, has_extension};
use crate::source::Source;

/// The contents of the documentation site.
const CONTENTS: &str = "docs/SUMMARY.md";
/// Alerts and dashboards.
const MONITORING: &str = "packaging/monitoring/";
/// The reference of problems.
const ERRORS: &str = "docs/reference/errors.md";
/// Names beside a status that belong to no problem.
const OTHER_NAMES: [&str; 1] = ["not-modified"];

/// Pages in docs/ that are missing in the contents of the site.
pub(crate) fn unlinked(files: &[File]) -> Vec<String> {
    let linked: Vec<String> = files
        .iter()
        .filter(|file| file.path == CONTENTS)
        .flat_map(|index| links(&index.text).filter_map(|link| resolved(&index.path, link)))
        .collect();
    let pages = markdown(files).filter(|page| page.path.starts_with("docs/") && page.path != CONTENTS);
    pages
        .filter(|page| !linked.contains(&page.path))
        .map(|page| format!("{}: {CONTENTS} does not link to it", page.path))
        .collect()
}

/// Links to missing files or outside the repository.
pub(crate) fn broken_links(files: &[File]) -> Vec<String> {
    let exists = |path: &str| files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
    let of = |page: &File| {
        let broken = links(&page.text).filter(|link| !resolved(&page.path, link).is_some_and(|path| exists(&path)));
        broken.map(|link| format!("{}: the link to {link} is broken", page.path)).collect::<Vec<_>>()
    };
    markdown(files).flat_map(of).collect()
}

/// Commands in code blocks with an unknown task, step, package, binary, example, test or flag.
pub(crate) fn unknown_commands(repository: &Repository) -> Vec<String> {
    let known = Known::of(repository);
    let of = |page: &File| {
        let wrong = shell_lines(&page.text).filter_map(|line| known.objection(line).map(|why| (line, why)));
        wrong.map(|(line, why)| format!("{}: `{line}`: {why}", page.path)).collect::<Vec<_>>()
    };
    markdown(&repository.files).flat_map(of).collect()
}

/// Names in the alerts and the dashboard that are no metric in the source of a crate.
pub(crate) fn unknown_metrics(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    let known: Vec<&str> =
        sources.flat_map(|file| file.text.split('"').filter(|text| metrics(text).eq([*text]))).collect();
    let monitoring = files.iter().filter(|file| file.path.starts_with(MONITORING));
    let of = |file: &File| {
        let unknown = metrics(&file.text).filter(|name| {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            !known.contains(name) && !base.is_some_and(|base| known.contains(&base))
        });
        unknown.map(|name| format!("{}: there is no metric {name}", file.path)).collect::<Vec<_>>()
    };
    monitoring.flat_map(of).collect()
}

/// CHANGELOG.md has a section for unreleased changes, or for the version in the manifests.
pub(crate) fn change_log(repository: &Repository) -> Vec<String> {
    let version = packages(&repository.metadata).find(|package| package["name"] == "ifmatch").unwrap();
    let wanted = ["## [Unreleased]".to_owned(), format!("## [{}]", version["version"].as_str().unwrap())];
    let log = repository.files.iter().find(|file| file.path == "CHANGELOG.md").map_or("", |file| &file.text);
    let covered = log.lines().any(|line| wanted.iter().any(|heading| line.starts_with(heading)));
    if covered { Vec::new() } else { vec![format!("CHANGELOG.md has no section {wanted:?}")] }
}

/// Names of problems in services that the reference of errors lacks.
pub(crate) fn undocumented_problems(repository: &Repository) -> Vec<String> {
    let page = repository.files.iter().find(|file| file.path == ERRORS).map_or("", |file| &file.text);
    let names = repository.sources.iter().filter(|source| !source.is_test).flat_map(problem_names);
    let missing = names.filter(|name| !page.contains(&format!("`{name}`")));
    missing.map(|name| format!("{ERRORS} does not explain {name}")).collect()
}

/// Returns the literals that follow a status, as in `Problem::new(StatusCode::CONFLICT, "container-exists")`.
fn problem_names(source: &Source) -> impl Iterator<Item = &str> {
    let statuses = source.positions(&["StatusCode", ":", ":"]).filter_map(|at| source.tokens.get(at + 4..at + 6));
    let literals = statuses.filter(|next| next[0].text == ",").map(|next| next[1].text.as_str());
    literals
        .filter_map(|literal| literal.strip_prefix('"')?.strip_suffix('"'))
        .filter(|name| is_kebab(name) && !OTHER_NAMES.contains(name))
}

fn is_kebab(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn markdown(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| has_extension(file, "md"))
}

/// Returns the words that begin like metrics of the gateway.
fn metrics(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|char: char| !char.is_ascii_lowercase() && !char.is_ascii_digit() && char != '_');
    words.filter(|word| word.starts_with("ifmatch_"))
}

/// Returns the targets of inline links to other files.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local =
        targets.filter(|target| !target.contains("://") && !target.starts_with('#') && !target.starts_with("mailto:"));
    local.filter_map(|target| target.split('#').next())
}

/// Returns the path of a link's target, or `None` outside the repository.
fn resolved(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the lines of shell code blocks.
fn shell_lines(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let shell = blocks.filter(|block| ["sh\n", "console\n", "bash\n"].iter().any(|kind| block.starts_with(kind)));
    shell.flat_map(|block| block.lines().skip(1)).map(|line| line.trim_start_matches("$ "))
}

/// Names that commands may use.
struct Known {
    targets: Vec<(String, String)>,
    packages: Vec<String>,
    steps: String,
    tasks: String,
    settings: String,
}

impl Known {
    fn of(repository: &Repository) -> Self {
        let text = |path: &str| repository.files.iter().find(|file| file.path == path).unwrap().text.clone();
        let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
        let targets = packages(&repository.metadata).flat_map(|package| package["targets"].as_array().unwrap());
        Self {
            targets: targets.map(|target| (target["kind"][0].as_str().unwrap().to_owned(), name(target))).collect(),
            packages: packages(&repository.metadata).map(name).collect(),
            steps: text("xtask/src/test.rs"),
            tasks: text("xtask/src/lib.rs").to_lowercase(),
            settings: text("crates/ifmatch-gateway/src/config/settings.rs")
                + &text("crates/ifmatch-gateway/src/cli/mod.rs"),
        }
    }

    /// Returns the reason why a command cannot work.
    fn objection(&self, line: &str) -> Option<String> {
        let (command, after) = line.split_once(" -- ").unwrap_or((line, ""));
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["cargo", "xtask", task, rest @ ..] => self.xtask(task, rest),
            ["cargo", rest @ ..] => self.cargo(rest).or_else(|| self.gateway(after)),
            ["ifmatch", ..] => self.gateway(line.strip_prefix("ifmatch")?),
            _ => None,
        }
    }

    fn xtask(&self, task: &str, rest: &[&str]) -> Option<String> {
        if !self.tasks.contains(&format!("    {task}(")) {
            return Some(format!("there is no task {task}"));
        }
        let mut pairs = rest.windows(2).filter(|pair| pair[0] == "--only");
        pairs
            .find(|pair| !self.steps.contains(&format!("name: \"{}\"", pair[1])))
            .map(|pair| format!("no step {}", pair[1]))
    }

    fn cargo(&self, words: &[&str]) -> Option<String> {
        let has = |kind: &str, name: &str| self.targets.contains(&(kind.to_owned(), name.to_owned()));
        let mut pairs = words.windows(2);
        let unknown = |pair: &&[&str]| match pair[0] {
            "--bin" => !has("bin", pair[1]),
            "--example" => !has("example", pair[1]),
            "--test" => !has("test", pair[1]),
            "--bench" => !has("bench", pair[1]),
            "-p" | "--package" => !self.packages.iter().any(|package| package == pair[1]),
            _ => false,
        };
        pairs.find(unknown).map(|pair| format!("there is no {} {}", pair[0], pair[1]))
    }

    /// Checks the flags of `ifmatch serve`, each a field of the settings.
    fn gateway(&self, arguments: &str) -> Option<String> {
        let mut words = arguments.split_whitespace();
        if words.next() != Some("serve") {
            return None;
        }
        let flags = words.filter_map(|word| word.strip_prefix("--"));
        let fields = flags.map(|flag| flag.split('=').next().unwrap_or_default().replace('-', "_"));
        let mut others = fields.filter(|field| !["help", "version"].contains(&field.as_str()));
        others
            .find(|field| !self.settings.contains(&format!("{field}:")))
            .map(|field| format!("there is no flag for {field}"))
    }
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().unwrap().iter()
}

#[test]
fn unlinked_pages_and_broken_links_are_found() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let contents = file(CONTENTS, "[a](a.md#top) [up](../README.md) [web](https://example.org/x)");
    let good = [file("README.md", "[docs](docs/)"), contents, file("docs/a.md", "")];
    assert_eq!([unlinked(&good), broken_links(&good)].concat(), [""; 0]);
    assert_eq!(unlinked(&[file("docs/b.md", "")]).len(), 1);
    assert_eq!(broken_links(&[file("README.md", "[a](docs/none.md) [b](../outside.md)")]).len(), 2);
}

#[test]
fn wrong_commands_are_found() {
    let known = Known::of(crate::repository());
    for right in [
        "cargo xtask test --only tidy",
        "cargo run --release --bin ifmatch -- serve --data ./data",
        "cargo test -p ifmatch-core",
        "ifmatch serve --listen=127.0.0.1:0 --max-body-size 1GiB",
        "curl -i http://127.0.0.1:10000/",
    ] {
        assert_eq!(known.objection(right), None, "{right}");
    }
    for wrong in [
        "cargo xtask deploy",
        "cargo xtask test --only everything",
        "cargo run --bin ifmatchd",
        "cargo run --example none",
        "cargo run --bin ifmatch -- serve --dat ./data",
        "ifmatch serve --verbose",
    ] {
        assert!(known.objection(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn names_of_problems_are_found() {
    let text =
        "fn f() { Problem::new(StatusCode::CONFLICT, \"a-b\"); (StatusCode::OK, \"Other\"); (StatusCode::OK, 1) }";
    let source = Source::parse("a.rs", text);
    assert_eq!(problem_names(&source).collect::<Vec<_>>(), ["a-b"]);
}
