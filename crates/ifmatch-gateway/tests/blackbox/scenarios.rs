//! Scenarios: requests one after the other, as in `azure-scenarios.txt`, which explains their form.

use std::collections::{HashMap, HashSet};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::azure::{A, B, IDS, acquire};
use crate::http::Reply;
use crate::site::Site;
use crate::suite::{Suite, borrowed};
use crate::tables::JSON;

/// A dialect, and its scenarios.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Azure,
    Plain,
    S3,
    Tables,
}

const FILES: [(Dialect, &str); 4] = [
    (
        Dialect::Azure,
        include_str!("../data/blackbox/azure-scenarios.txt"),
    ),
    (
        Dialect::Plain,
        include_str!("../data/blackbox/plain-scenarios.txt"),
    ),
    (
        Dialect::S3,
        include_str!("../data/blackbox/s3-scenarios.txt"),
    ),
    (
        Dialect::Tables,
        include_str!("../data/blackbox/tables-scenarios.txt"),
    ),
];

pub(crate) fn add(suite: &mut Suite) {
    for (dialect, text) in FILES {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text: String = lines.flat_map(|line| ["\n", line]).collect();
        for scenario in text.split("\n= ").skip(1) {
            let (name, lines) = scenario.split_once('\n').expect("a name and lines");
            let lines: Vec<String> = lines
                .lines()
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect();
            suite.case(name, move |site| {
                let mut scenario = Scenario::new(site, dialect);
                for line in &lines {
                    scenario.step(line);
                }
                let unused = scenario.unused;
                assert!(unused.is_empty(), "misspelt or needless: {unused:?}");
            });
        }
    }
}

/// A scenario while it runs.
struct Scenario<'a> {
    site: &'a Site,
    dialect: Dialect,
    /// The path of its container, and one that doesn't exist.
    own: String,
    new: String,
    /// The values of names that begin with a dollar.
    values: HashMap<String, String>,
    /// The names that a line has defined, and none has used.
    unused: HashSet<String>,
}

/// Options of a query, which begin with a dollar, too.
const OPTIONS: [&str; 3] = ["filter", "select", "top"];

impl<'a> Scenario<'a> {
    fn new(site: &'a Site, dialect: Dialect) -> Self {
        let name = site.name();
        let own = format!("/{name}");
        match dialect {
            Dialect::Azure => drop(
                site.azure()
                    .put(&format!("{own}?restype=container"), &[], "")
                    .is(201),
            ),
            Dialect::Plain => {}
            Dialect::S3 => drop(site.s3().put(&own, &[], "").is(200)),
            Dialect::Tables => {
                let table = json!({ "TableName": name }).to_string();
                site.tables().send("POST", "/Tables", &JSON, table).is(201);
            }
        }
        let known = [
            ("url", &*site.url("")),
            ("box", &name),
            ("account", site.signer.account()),
            ("A", A),
            ("B", B),
            ("R", "a2fbd51e-4b2a-4b1c-8a94-6d4e5a7b9c01"),
            ("MD5", "XUFAKrxLKna5cZ2REBfFkg=="),
            ("OTHER", "WY1MIARhuBUiozKFZcJffA=="),
        ];
        let mut values =
            HashMap::from_iter(known.map(|(name, value)| (name.to_owned(), value.to_owned())));
        values.extend(
            IDS.iter()
                .enumerate()
                .map(|(at, id)| (format!("ID{at}"), (*id).to_owned())),
        );
        Self {
            site,
            dialect,
            own,
            new: format!("/{}", site.name()),
            values,
            unused: HashSet::new(),
        }
    }

    /// Replaces names by their values, `/box` by the path of the container, and `/new` by one that doesn't exist.
    fn meaning(&mut self, text: &str) -> String {
        let text = text.replace("/box", &self.own).replace("/new", &self.new);
        let mut parts = text.split('$');
        let mut meaning = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part
                .find(|char: char| !char.is_alphanumeric())
                .unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            self.unused.remove(name);
            match self.values.get(name) {
                Some(value) => meaning += value,
                None if OPTIONS.contains(&name) => meaning.extend(["$", name]),
                None => panic!("${name} has no value: {text}"),
            }
            meaning += rest;
        }
        meaning
    }

    fn step(&mut self, line: &str) {
        let (request, expected) = line
            .split_once(" -> ")
            .unwrap_or_else(|| panic!("a request and its answer: {line}"));
        let reply = self.send(request);
        let mut checks = expected.split(" ; ");
        let (status, code) = checks
            .next()
            .map(|first| first.split_once(' ').unwrap_or((first, "")))
            .expect("a status");
        let reply = reply.is(status
            .parse()
            .unwrap_or_else(|_| panic!("a status: {line}")));
        if !code.is_empty() && reply.code() != code {
            reply.fail(code);
        }
        for check in checks {
            let (name, value) = check
                .split_once('=')
                .unwrap_or_else(|| panic!("a name and a value: {line}"));
            let (name, is_equal) = name
                .strip_suffix('!')
                .map_or((name, true), |name| (name, false));
            let found = match name.strip_prefix('<') {
                Some(element) => reply.all(element.trim_end_matches('>')).join(","),
                None if name.starts_with('/') => match reply.json().pointer(name) {
                    None => String::new(),
                    Some(Value::String(text)) => text.clone(),
                    Some(value) => value.to_string(),
                },
                None if name == "text" => reply.text().to_owned(),
                None => reply.field(name).to_owned(),
            };
            if let Some(new) = value
                .strip_prefix('$')
                .filter(|new| new.chars().all(char::is_alphanumeric))
                && !self.values.contains_key(new)
            {
                assert!(is_equal, "${new} has no value: {line}");
                assert!(!found.is_empty(), "no {name} for {line}");
                self.values.insert(new.to_owned(), found);
                self.unused.insert(new.to_owned());
                continue;
            }
            let is_met = match value.strip_prefix('…') {
                Some(end) => found.ends_with(&self.meaning(end)),
                None => found == self.meaning(value),
            };
            if is_met != is_equal {
                reply.fail(&format!("{check}, and {name} is {found:?}"));
            }
        }
    }

    fn send(&mut self, request: &str) -> Reply {
        let ends = [" {", " \""].map(|end| request.find(end).unwrap_or(request.len()));
        let (words, mut rest) = request.split_at(ends[0].min(ends[1]));
        let mut fields: Vec<(String, String)> = Vec::new();
        while let Some(field) = rest.trim_start().strip_prefix('{') {
            let (field, after) = field
                .split_once('}')
                .unwrap_or_else(|| panic!("a field: {request}"));
            let (name, value) = field
                .split_once(": ")
                .unwrap_or_else(|| panic!("a name and a value: {request}"));
            fields.push((name.to_owned(), self.meaning(value)));
            rest = after;
        }
        let content = rest
            .trim_start()
            .strip_prefix('"')
            .and_then(|content| content.strip_suffix('"'));
        let content = self.meaning(content.unwrap_or_default());
        let words: Vec<String> = words
            .split_whitespace()
            .map(|word| self.meaning(word))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (dialect, words) = match words[0] {
            "plain" => (Dialect::Plain, &words[1..]),
            "azure" => (Dialect::Azure, &words[1..]),
            _ => (self.dialect, &words[..]),
        };
        let mut http = match dialect {
            Dialect::Azure => self.site.azure(),
            Dialect::Plain => self.site.plain(),
            Dialect::S3 => self.site.s3(),
            Dialect::Tables => self.site.tables(),
        };
        if dialect == Dialect::Tables {
            let missing = JSON
                .iter()
                .filter(|(name, _)| fields.iter().all(|(given, _)| given != name));
            let missing: Vec<_> = missing
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            fields.extend(missing);
        }
        let fields = borrowed(&fields);
        match *words {
            ["UPLOAD", path] => http.upload(path, &fields, content),
            ["ACQUIRE", path, id] => acquire(&mut http, path, id, -1),
            ["STAGE", id, path] => {
                let id = utf8_percent_encode(
                    IDS[id.parse::<usize>().expect("a number")],
                    NON_ALPHANUMERIC,
                );
                http.put(&format!("{path}?comp=block&blockid={id}"), &fields, content)
            }
            ["COMMIT", path] => {
                let block = |block: &str| {
                    let (from, id) = block
                        .split_once(' ')
                        .expect("where the block is, and its number");
                    format!(
                        "<{from}>{}</{from}>",
                        IDS[id.parse::<usize>().expect("a number")]
                    )
                };
                let blocks: String = content
                    .split(", ")
                    .filter(|block| !block.is_empty())
                    .map(block)
                    .collect();
                http.put(
                    &format!("{path}?comp=blocklist"),
                    &fields,
                    format!("<BlockList>{blocks}</BlockList>"),
                )
            }
            [method, path] => http.send(method, path, &fields, content),
            _ => panic!("a request: {request}"),
        }
    }
}
