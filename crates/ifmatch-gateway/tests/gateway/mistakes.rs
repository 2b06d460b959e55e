//! Mistakes on the command line, in the settings and in requests: each is told with what to do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use support::raw::exchange;
use support::tls::Files;
use support::{Gateway, run_command};
use tempfile::TempDir;

/// The mistakes. The first lines of the file describe its form.
const ROWS: &str = include_str!("../data/mistakes.txt");

/// The servers and files that the rows name.
struct Site {
    _gateways: [Gateway; 4],
    _files: [Files; 2],
    folder: TempDir,
    names: BTreeMap<&'static str, String>,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("empty")).unwrap();
        for (name, text) in [
            ("file", "neither a folder nor PEM"),
            ("comment", "# none\n"),
            ("wrong.token", "wrong\n"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        symlink(path("nowhere"), path("link")).unwrap();
        let files = [Files::new(), Files::new()];
        for (number, prefix) in [(0, ""), (1, "other-")] {
            for name in ["cert.pem", "key.pem"] {
                fs::copy(files[number].path(name), path(&format!("{prefix}{name}"))).unwrap();
            }
        }
        let open = Gateway::start(["serve", "--data", path("data").to_str().unwrap()]);
        let put = "PUT /docs/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na";
        exchange(open.address(), put).expect(201);
        let tokens = [
            "--write-token",
            "write-write-write",
            "--read-token",
            "read-read-read",
        ];
        let guarded = Gateway::start(["serve", "--store", "memory://"].iter().chain(&tokens));
        let proxy = Gateway::start(["proxy", "--upstream", &open.url("")]);
        let tls = Gateway::start(files[0].flags("cert.pem", "key.pem"));
        let names = BTreeMap::from([
            ("open", open.url("")),
            ("at", open.address().to_string()),
            ("guarded", guarded.url("")),
            ("proxy", proxy.url("")),
            ("tls", format!("https://localhost:{}", tls.address().port())),
            ("tls-at", tls.address().to_string()),
            ("none", "http://127.0.0.1:1".to_owned()),
            ("dir", folder.path().to_str().unwrap().to_owned()),
        ]);
        Self {
            _gateways: [open, guarded, proxy, tls],
            _files: files,
            folder,
            names,
        }
    }

    /// Replaces the names in a text, and writes the files that it contains.
    fn fill(&self, text: &str) -> String {
        let mut filled = self
            .names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            });
        if let Some((before, rest)) = filled.clone().split_once("{toml:") {
            let (lines, after) = rest.rsplit_once('}').unwrap();
            let file = self.folder.path().join("settings.toml");
            fs::write(&file, lines.replace(';', "\n")).unwrap();
            filled = format!("{before}{}{after}", file.display());
        }
        filled
    }

    /// Returns what is wrong with the answer to a row, if anything.
    fn fault(&self, row: &str) -> Option<String> {
        let [line, code, sentence] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            return Some("no row".into());
        };
        let words = words(&self.fill(line));
        let sentence = self.fill(sentence);
        let is_request = words[0].bytes().all(|byte| byte.is_ascii_uppercase());
        let (found, said) = if is_request {
            request(&words[0], &words[1])
        } else {
            command(&words)
        };
        if found != code || !said.contains(&sentence) {
            return Some(format!(
                "{code} and {sentence:?} expected, found {found} and {said}"
            ));
        }
        let first = said.lines().next().unwrap_or_default();
        let is_chain = said.starts_with("ifmatch: ")
            && first.matches(": ").count() > 2
            && !line.contains("toml");
        let internals = [
            "panicked",
            "RUST_BACKTRACE",
            "Err(",
            "Os {",
            "secret@",
            "hunter2",
        ];
        let shown = internals.iter().find(|internal| said.contains(**internal));
        shown
            .map(|shown| format!("{shown} in {said}"))
            .or_else(|| is_chain.then(|| format!("a chain of causes: {said}")))
    }
}

/// Splits a line as a shell does, with single quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut is_quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}

/// Sends a request, and returns its status and the detail of the problem.
fn request(method: &str, url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    let answer = exchange(address.parse().unwrap(), head);
    let detail = answer.json()["detail"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status.as_u16().to_string(), detail)
}

/// Runs a command line, and returns its exit code and stderr.
fn command(words: &[String]) -> (String, String) {
    let mut command: Command = Gateway::command();
    command.env("IFMATCH_LISTEN", "127.0.0.1:0");
    let is_variable = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            name.bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
    };
    for (name, value) in words
        .iter()
        .take_while(is_variable)
        .filter_map(|word| word.split_once('='))
    {
        command.env(name, value);
    }
    let end = run_command(command.args(words.iter().skip_while(is_variable)));
    (
        end.status
            .code()
            .map(|code| code.to_string())
            .unwrap_or_default(),
        end.stderr,
    )
}

#[test]
fn each_mistake_is_told_with_what_to_do() {
    let site = Site::new();
    let rows: Vec<&str> = ROWS
        .lines()
        .filter(|row| !row.is_empty() && !row.starts_with(['#', '=']))
        .collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| site.fault(row).map(|fault| format!("{row}\n    {fault}")))
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {}:\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );
}
