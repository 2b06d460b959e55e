//! Checks the layering of docs/architecture.md with `cargo tree`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::Result;
use crate::command::Run;
use crate::step::Context;

/// `package` must not reach any of `forbidden` through normal dependencies, with any features.
struct Rule {
    package: &'static str,
    forbidden: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        package: "ifmatch-core",
        forbidden: &[
            "tokio",
            "mio",
            "socket2",
            "hyper",
            "hyper-util",
            "tower",
            "axum",
            "moka",
            "quick_cache",
            "redb",
            "rustls",
            "object_store",
            "futures-util",
            "futures-core",
            "async-trait",
            "getrandom",
            "rand",
            "tracing",
        ],
        why: "core decides: no I/O, no clock, no randomness, no async",
    },
    Rule {
        package: "ifmatch-runtime",
        forbidden: &["hyper", "hyper-util", "axum", "tower", "redb", "mio", "socket2", "ifmatch-register"],
        why: "the runtime knows clocks, tasks and randomness, not registers or servers",
    },
    Rule {
        package: "ifmatch-register",
        forbidden: &["hyper", "hyper-util", "axum", "tower", "redb", "rustls", "object_store", "mio", "socket2"],
        why: "a register's author gets the trait and the driver, not a server",
    },
    Rule {
        package: "ifmatch",
        forbidden: &["axum", "hyper-util", "redb", "rustls", "object_store", "ifmatch-blob", "mio", "socket2"],
        why: "the layer works with any http service and any register",
    },
    Rule {
        package: "ifmatch-postgres",
        forbidden: &["axum", "clap", "hyper", "tower", "redb", "object_store", "ifmatch", "ifmatch-gateway"],
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-etcd",
        forbidden: &["axum", "clap", "redb", "object_store", "ifmatch", "ifmatch-gateway"],
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-redis",
        forbidden: &["axum", "clap", "hyper", "tower", "redb", "object_store", "ifmatch", "ifmatch-gateway"],
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-blob",
        forbidden: &[
            "axum",
            "clap",
            "hyper-util",
            "redb",
            "object_store",
            "ifmatch-azure",
            "ifmatch-blob-embedded",
            "ifmatch-blob-objects",
            "ifmatch-gateway",
        ],
        why: "the contract and the service know no store, no dialect but the plain one, and no listener",
    },
    Rule {
        package: "ifmatch-blob-embedded",
        forbidden: &["axum", "clap", "hyper-util", "object_store", "ifmatch-azure", "ifmatch-gateway"],
        why: "a store knows no dialect and no other store",
    },
    Rule {
        package: "ifmatch-blob-objects",
        forbidden: &["axum", "clap", "redb", "ifmatch-azure", "ifmatch-blob-embedded", "ifmatch-gateway"],
        why: "a store knows no dialect and no other store",
    },
    Rule {
        package: "ifmatch-azure",
        forbidden: &["axum", "clap", "hyper-util", "redb", "object_store", "ifmatch-azure-tables", "ifmatch-gateway"],
        why: "a dialect works with any store",
    },
    Rule {
        package: "ifmatch-azure-tables",
        forbidden: &["axum", "clap", "hyper-util", "redb", "object_store", "ifmatch-gateway"],
        why: "tables work with any store",
    },
    Rule {
        package: "ifmatch-s3",
        forbidden: &["axum", "clap", "hyper-util", "redb", "object_store", "ifmatch-azure-tables", "ifmatch-gateway"],
        why: "a dialect works with any store",
    },
    Rule {
        package: "ifmatch-cache",
        forbidden: &[
            "axum",
            "hyper",
            "hyper-util",
            "rustls",
            "object_store",
            "mio",
            "socket2",
            "ifmatch-register",
            "ifmatch-blob",
            "ifmatch-proxy",
            "ifmatch-gateway",
        ],
        why: "the cache works with any http service, on sockets or not",
    },
    Rule {
        package: "ifmatch-http-server",
        forbidden: &[
            "axum",
            "clap",
            "redb",
            "object_store",
            "metrics",
            "ifmatch-blob",
            "ifmatch-proxy",
            "ifmatch-gateway",
        ],
        why: "the server accepts connections for any handler: settings and metrics belong to the gateway",
    },
    Rule {
        package: "ifmatch-client",
        forbidden: &["axum", "clap", "redb", "ifmatch-register", "ifmatch-blob", "ifmatch-proxy", "ifmatch-gateway"],
        why: "a client knows HTTP and stores, not the servers",
    },
    Rule {
        package: "ifmatch-proxy",
        forbidden: &[
            "axum",
            "clap",
            "moka",
            "redb",
            "object_store",
            "ifmatch-register",
            "ifmatch-blob",
            "ifmatch-cache",
            "ifmatch-gateway",
        ],
        why: "forwarding and caching are separate concerns: the gateway combines them",
    },
];

const LAYER: &str = "ifmatch";

/// Checks every rule.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let root = context.workspace.root();
    let mut broken: Vec<String> = RULES.iter().map(|rule| rule.violations(root)).collect::<Result<Vec<_>>>()?.concat();
    broken.extend(too_new(LAYER, root)?);
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n").into()) }
}

impl Rule {
    fn violations(&self, root: &Path) -> Result<Vec<String>> {
        // The layer knows axum only in a service that asks for it.
        let features = if self.package == LAYER { "--features blake3,testing" } else { "--all-features" };
        let args = format!(
            "tree --locked --package {} {features} --edges normal --target all --prefix none --format {{p}}",
            self.package
        );
        let tree = Run::cargo(&args, root).output()?;
        println!("{}: {} lines of dependencies", self.package, tree.lines().count());
        Ok(self.found_in(&tree).map(|name| format!("{} depends on {name}: {}", self.package, self.why)).collect())
    }

    fn found_in<'a>(&self, tree: &'a str) -> impl Iterator<Item = &'a str> {
        let names = tree.lines().filter_map(|line| line.split(' ').next());
        let mut found: Vec<&str> = names.filter(|name| self.forbidden.contains(name)).collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter()
    }
}

/// Returns the crates, each as `name v1.2.3`, that a user of a package compiles with its default features.
fn crates_of(package: &str, root: &Path) -> Result<BTreeSet<String>> {
    let args = format!("tree --locked --package {package} --edges normal --prefix none --no-dedupe --format {{p}}");
    let tree = Run::cargo(&args, root).output()?;
    // A crate of the workspace has its folder at the end.
    Ok(tree.lines().map(|line| line.split(" (").next().unwrap_or(line).to_owned()).collect())
}

/// Dependencies that need a newer Rust than the package states. Clippy checks the package's own code.
fn too_new(package: &str, root: &Path) -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_str(&Run::cargo("metadata --locked --format-version 1", root).output()?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let crates = crates_of(package, root)?;
    let needed: BTreeMap<String, Vec<u32>> = packages
        .iter()
        .filter_map(|package| {
            let name = format!("{} v{}", package["name"].as_str()?, package["version"].as_str()?);
            Some((name, numbers(package["rust_version"].as_str()?)))
        })
        .filter(|(name, _)| crates.contains(name))
        .collect();
    let own = needed.iter().find(|(name, _)| name.split(' ').next() == Some(package));
    let (_, stated) = own.ok_or_else(|| format!("{package} states no rust-version"))?;
    let newer = needed.iter().filter(|(_, version)| *version > stated);
    Ok(newer.map(|(name, version)| format!("{package} needs {name}, which needs Rust {version:?}")).collect())
}

/// Returns the numbers of a Rust version. A patch version of 0 may be left out.
fn numbers(version: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    numbers.resize(3, 0);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.89") < numbers("1.100"));
        assert_eq!(numbers("1.89"), numbers("1.89.0"));
    }

    #[test]
    fn a_forbidden_dependency_is_found_once_at_any_depth() {
        let rule = Rule { package: "p", forbidden: &["tokio", "redb"], why: "" };
        let tree = "p v0.1.0 (/p)\nhttp v1.0.0\ntokio v1.0.0\ntokio-util v0.7.0\ntokio v1.0.0 (*)\n";
        assert_eq!(rule.found_in(tree).collect::<Vec<_>>(), ["tokio"]);
    }
}
