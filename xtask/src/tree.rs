//! Checks the layering that the code map of CONTRIBUTING.md describes, of crates with `cargo tree` and of their modules.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Result;
use crate::command::Run;
use crate::modules;
use crate::step::Context;

/// `package` must not reach any of the `forbidden` crates through normal dependencies, with any features.
struct Rule {
    package: &'static str,
    /// Names, separated by spaces.
    forbidden: &'static str,
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        package: "ifmatch-core",
        forbidden: "tokio mio socket2 hyper hyper-util tower axum moka quick_cache redb rustls object_store \
            futures-util futures-core async-trait getrandom rand tracing",
        why: "core decides: no I/O, no clock, no randomness, no async",
    },
    Rule {
        package: "ifmatch-runtime",
        forbidden: "hyper hyper-util axum tower redb mio socket2 ifmatch-register",
        why: "the runtime knows clocks, tasks and randomness, not registers or servers",
    },
    Rule {
        package: "ifmatch-register",
        forbidden: "hyper hyper-util axum tower redb rustls object_store mio socket2",
        why: "a register's author gets the trait and the driver, not a server",
    },
    Rule {
        package: "ifmatch",
        forbidden: "axum hyper-util redb rustls object_store ifmatch-blob mio socket2 backon base64 hex postcard",
        why: "the layer works with any http service and any register, and a service that keeps its records in memory \
            needs no encoding of them",
    },
    Rule {
        package: "ifmatch-postgres",
        forbidden: "axum clap hyper tower redb object_store ifmatch ifmatch-gateway",
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-etcd",
        forbidden: "axum clap redb object_store ifmatch ifmatch-gateway",
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-http-register",
        forbidden: "axum clap hyper hyper-util mio reqwest redb rustls socket2 object_store ifmatch ifmatch-blob \
            ifmatch-client ifmatch-gateway",
        why: "a register by HTTP leaves the client to its user, and runs in WebAssembly",
    },
    Rule {
        package: "ifmatch-redis",
        forbidden: "axum clap hyper tower redb object_store ifmatch ifmatch-gateway",
        why: "a register knows its engine, not its users",
    },
    Rule {
        package: "ifmatch-blob",
        forbidden: "axum clap hyper-util redb object_store ifmatch-azure ifmatch-blob-indexed ifmatch-blob-objects \
            ifmatch-gateway",
        why: "the contract and the service know no store, no dialect but the plain one, and no listener",
    },
    Rule {
        package: "ifmatch-blob-indexed",
        forbidden: "axum clap hyper-util ifmatch-blob-objects ifmatch-azure ifmatch-gateway",
        why: "a store knows no dialect and no other store",
    },
    Rule {
        package: "ifmatch-blob-objects",
        forbidden: "axum clap redb ifmatch-azure ifmatch-blob-indexed ifmatch-gateway",
        why: "a store knows no dialect and no other store",
    },
    Rule {
        package: "ifmatch-azure",
        forbidden: "axum clap hyper-util redb object_store ifmatch-azure-tables ifmatch-gateway",
        why: "a dialect works with any store",
    },
    Rule {
        package: "ifmatch-azure-tables",
        forbidden: "axum clap hyper-util redb object_store ifmatch-gateway",
        why: "tables work with any store",
    },
    Rule {
        package: "ifmatch-s3",
        forbidden: "axum clap hyper-util redb object_store ifmatch-azure ifmatch-azure-tables ifmatch-gateway",
        why: "a dialect works with any store, and does not depend on another dialect",
    },
    Rule {
        package: "ifmatch-cache",
        forbidden: "axum hyper hyper-util rustls object_store mio socket2 ifmatch-register ifmatch-blob \
            ifmatch-proxy ifmatch-gateway",
        why: "the cache works with any http service, on sockets or not",
    },
    Rule {
        package: "ifmatch-http-server",
        forbidden: "axum clap redb object_store metrics ifmatch-blob ifmatch-proxy ifmatch-gateway",
        why: "the server accepts connections for any handler: settings and metrics belong to the gateway",
    },
    Rule {
        package: "ifmatch-client",
        forbidden: "axum clap redb ifmatch-register ifmatch-blob ifmatch-proxy ifmatch-gateway",
        why: "a client knows HTTP and stores, not the servers",
    },
    Rule {
        package: "ifmatch-proxy",
        forbidden: "axum clap moka redb object_store ifmatch-register ifmatch-blob ifmatch-cache ifmatch-gateway",
        why: "forwarding and caching are separate concerns: the gateway combines them",
    },
    Rule {
        package: "ifmatch-gateway-config",
        forbidden: "ifmatch-azure-tables ifmatch-blob-indexed ifmatch-blob-objects ifmatch-redb ifmatch-s3 ifmatch-gateway",
        why: "settings name stores and dialects, and open none, so the build of the gateway needn't wait for them",
    },
    Rule {
        package: "ifmatch-gateway-service",
        forbidden: "ifmatch-azure-tables ifmatch-blob-objects ifmatch-s3 ifmatch-gateway-commands ifmatch-gateway",
        why: "endpoints and checks are the same in front of any dialect, and compile beside them",
    },
    Rule {
        package: "ifmatch-gateway-commands",
        forbidden: "ifmatch-azure-tables ifmatch-s3 ifmatch-gateway-service ifmatch-gateway",
        why: "a command asks a server by HTTP or opens a store, and is no server",
    },
];

/// Checks every rule.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let root = context.workspace.root();
    let mut broken = RULES
        .iter()
        .map(|rule| rule.violations(root))
        .collect::<Result<Vec<_>>>()?
        .concat();
    broken.extend(modules::violations(root)?);
    if broken.is_empty() {
        Ok(())
    } else {
        Err(broken.join("\n").into())
    }
}

impl Rule {
    fn violations(&self, root: &Path) -> Result<Vec<String>> {
        // The layer and the tags know axum only in a service that asks for it.
        let features = match self.package {
            "ifmatch" => "--features blake3,testing",
            "ifmatch-core" => "--features blake3,digest-fields,protocol,shared-key",
            _ => "--all-features",
        };
        let args = format!(
            "tree --locked --package {} {features} --edges normal --target all --prefix none --format {{p}}",
            self.package
        );
        let tree = Run::cargo(&args, root).output()?;
        println!(
            "{}: {} lines of dependencies",
            self.package,
            tree.lines().count()
        );
        Ok(self
            .found_in(&tree)
            .map(|name| format!("{} depends on {name}: {}", self.package, self.why))
            .collect())
    }

    fn found_in(&self, tree: &str) -> impl Iterator<Item = &'static str> {
        let names: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        self.forbidden
            .split(' ')
            .filter(move |name| names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_dependency_is_found_once_at_any_depth() {
        let rule = Rule {
            package: "p",
            forbidden: "tokio redb",
            why: "",
        };
        let tree =
            "p v0.1.0 (/p)\nhttp v1.0.0\ntokio v1.0.0\ntokio-util v0.7.0\ntokio v1.0.0 (*)\n";
        assert_eq!(rule.found_in(tree).collect::<Vec<_>>(), ["tokio"]);
    }
}
