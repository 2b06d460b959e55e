//! `cargo xtask ci`: all checks of the repository, as a list of steps. The first is `cargo test`.

use std::fs::{self, File};
use std::path::PathBuf;

use clap::Args;

use crate::command::Run;
use crate::step::{Context, Step, require, run_beside, run_in_order};
use crate::tools::{
    CHROMIUM, CLIPPY, CXX, ETCD, ETCDCTL, FAKETIME, GIT, LIBSECRET, NGINX, NODE, NPM, POSTGRESQL,
    PROMETHEUS, RCLONE, REDIS, RESTIC, RUSTFMT, VARNISH, WASM,
};
use crate::workspace::{FULL, SELECTION, Workspace};
use crate::{Result, component, js, npm, platforms, programs, sdk, tree, wasm, worker};

/// Options of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs only this step. May be repeated.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Lists the steps.
    #[arg(long)]
    list: bool,
}

/// Steps that compile or run natively, in running order.
const NATIVE: &[Step] = &[
    Step {
        name: "test",
        about: "cargo test: the promises, on the default store",
        needs: &[GIT],
        run: test,
    },
    Step {
        name: "format",
        about: "cargo fmt changes nothing",
        needs: &[RUSTFMT],
        run: format,
    },
    Step {
        name: "tree",
        about: "the layering of the crates",
        needs: &[],
        run: tree::check,
    },
    Step {
        name: "clippy",
        about: "no warnings in any target, with all features",
        needs: &[CLIPPY],
        run: clippy,
    },
    Step {
        name: "servers",
        about: "databases, object stores and other proxies; several gateways; the examples; the alerts",
        needs: &[
            ETCD, ETCDCTL, FAKETIME, NGINX, NODE, NPM, POSTGRESQL, PROMETHEUS, REDIS, VARNISH,
        ],
        run: servers,
    },
    Step {
        name: "platforms",
        about: "no warnings for Windows and macOS",
        needs: &[platforms::MINGW, platforms::SOURCES, sdk::PYTHON],
        run: platforms::check,
    },
    Step {
        name: "fuzz",
        about: "the fuzz targets build",
        needs: &[CLIPPY, CXX],
        run: fuzz,
    },
    Step {
        name: "doc",
        about: "the documentation builds, and its links work",
        needs: &[],
        run: doc,
    },
    Step {
        name: "site",
        about: "the documentation site builds, and its links work",
        needs: &[],
        run: programs::check_docs,
    },
];

/// WebAssembly, and clients in other languages. They run beside the native steps, since they mostly wait: for one long link, and
/// for the Worker's simulator. Those that need the gateway come last: they wait until `test` has ended.
const SERVED: &[Step] = &[
    Step {
        name: "wasm",
        about: "tests of the core and the layer, as WebAssembly",
        needs: &[NODE, WASM],
        run: wasm::in_node::check,
    },
    Step {
        name: "js",
        about: "the package for JavaScript: types, tables, Workers that use it",
        needs: &[NODE, NPM, WASM],
        run: js::check,
    },
    Step {
        name: "worker",
        about: "the Cloudflare Worker: size, tests, its register, the Azure clients",
        needs: &[NODE, NPM, sdk::PYTHON, WASM],
        run: worker::check::check,
    },
    Step {
        name: "component",
        about: "the WebAssembly component, in front of guests, in a host",
        needs: &[CLIPPY, NODE, NPM, sdk::PYTHON, WASM],
        run: component::check,
    },
    Step {
        name: "console",
        about: "the gateway's console in Chromium: its jobs, accessibility, attacks; the client for browsers",
        needs: &[CHROMIUM, NODE, NPM, REDIS],
        run: console,
    },
    Step {
        name: "sdk",
        about: "the clients of Azure and S3; restic, rclone, azcopy, s5cmd",
        needs: &[LIBSECRET, NODE, NPM, sdk::PYTHON, RCLONE, RESTIC],
        run: sdk,
    },
];

/// Steps that run when they are asked for: one checks the tests, and not the product; the other compiles all crates for Windows.
const ON_REQUEST: &[Step] = &[
    Step {
        name: "azurite",
        about: "on request: the suites of the Azure clients against Azurite",
        needs: &[NODE, NPM, sdk::PYTHON],
        run: sdk::check_azurite,
    },
    Step {
        name: "windows",
        about: "on request: the black-box suite against the Windows binary, under Wine",
        needs: &[platforms::MINGW, platforms::SOURCES, platforms::WINE],
        run: platforms::check_windows,
    },
];

/// Runs the selected steps, by default all but those on request.
pub(crate) fn run(options: &Options) -> Result {
    if options.list {
        for step in all() {
            println!("{:<10} {}", step.name, step.about);
        }
        return Ok(());
    }
    let workspace = Workspace::load()?;
    if !options.only.is_empty() {
        let steps = chosen(&options.only)?;
        require(&steps, &workspace)?;
        return run_in_order(&steps, &workspace);
    }
    require(
        &[NATIVE, SERVED].into_iter().flatten().collect::<Vec<_>>(),
        &workspace,
    )?;
    let served = SERVED.iter().flat_map(|step| ["--only", step.name]);
    let served = Run::new(std::env::current_exe()?, workspace.root())
        .args(["ci"])
        .args(served);
    run_beside(&NATIVE.iter().collect::<Vec<_>>(), served, &workspace)
}

fn all() -> impl Iterator<Item = &'static Step> {
    [NATIVE, SERVED, ON_REQUEST].into_iter().flatten()
}

/// Returns the named steps in running order.
fn chosen(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| all().all(|step| step.name != **name))
    {
        return Err(format!("there is no step `{unknown}`: see cargo xtask ci --list").into());
    }
    Ok(all()
        .filter(|step| only.iter().any(|name| name == step.name))
        .collect())
}

fn cargo(context: &Context<'_>, args: &str) -> Result {
    Run::cargo(args, context.workspace.root()).passes(context.deadline)
}

fn format(context: &Context<'_>) -> Result {
    cargo(context, "fmt --all --check")?;
    cargo(context, "fmt --manifest-path wasm/host/Cargo.toml --check")?;
    cargo(
        context,
        "fmt --manifest-path benches/Cargo.toml --all --check",
    )
}

/// The command of the README.
fn test(context: &Context<'_>) -> Result {
    let _lock = lock_gateway(context.workspace)?;
    cargo(context, "test --locked")
}

fn clippy(context: &Context<'_>) -> Result {
    cargo(
        context,
        &format!("clippy --quiet --locked {SELECTION} --all-targets -- -D warnings"),
    )?;
    // `--all-targets` leaves out those that only commands of their own run.
    cargo(
        context,
        &format!("clippy --quiet --locked {SELECTION} --test * -- -D warnings"),
    )?;
    // What the build of the default features has in place of the others.
    cargo(
        context,
        "clippy --quiet --locked --package ifmatch-gateway -- -D warnings",
    )?;
    cargo(
        context,
        "clippy --quiet --locked --package wasm-harness -- -D warnings",
    )?;
    // Each of the crates that users add, alone: features of the others would hide what it lacks.
    [
        "ifmatch-core",
        "ifmatch-runtime",
        "ifmatch-register",
        "ifmatch",
        "ifmatch-cache",
        "ifmatch-client",
    ]
    .iter()
    .try_for_each(|package| {
        cargo(
            context,
            &format!("check --quiet --locked --package {package} --no-default-features"),
        )
    })
}

/// The fuzz targets are a separate workspace, since cargo-fuzz builds them with its own flags.
fn fuzz(context: &Context<'_>) -> Result {
    Run::cargo(
        "clippy --quiet --locked --manifest-path fuzz/Cargo.toml -- -D warnings",
        context.workspace.root(),
    )
    .env("CARGO_TARGET_DIR", context.workspace.target().join("fuzz"))
    .passes(context.deadline)?;
    context.discard("fuzz");
    cargo(context, "fmt --manifest-path fuzz/Cargo.toml --check")
}

fn doc(context: &Context<'_>) -> Result {
    Run::cargo(
        &format!("doc --quiet --locked {SELECTION} --no-deps"),
        context.workspace.root(),
    )
    .env("RUSTDOCFLAGS", "-D warnings")
    .passes(context.deadline)
}

/// What `cargo test` leaves out: the packages whose tests need other programs, and the gateway with all features.
fn servers(context: &Context<'_>) -> Result {
    let monitoring = context.workspace.root().join("packaging/monitoring");
    Run::new("promtool", &monitoring)
        .args(["test", "rules", "alerts.test.yml"])
        .passes(context.deadline)?;
    let gateway = gateway(context)?;
    npm::require(context.workspace, npm::AZURITE, context.deadline)?;
    let run = |args: &str| {
        let command = format!("test --locked {FULL} {args}");
        Run::cargo(&command, context.workspace.root())
            .env("IFMATCH_BIN", &gateway)
            .passes(context.deadline)
    };
    // As `cargo test` without a selection does, for the tests that run them.
    cargo(
        context,
        &format!("build --locked {FULL} --examples --test worker_register"),
    )?;
    run("--lib --bins")?;
    run(
        "--test servers --test postgres --test redis --test etcd --test warnings --test examples --test soak",
    )?;
    run("--package ifmatch-sim --test models -- large:: purges::")?;
    Run::cargo(
        &format!("test --locked {FULL} --test blackbox"),
        context.workspace.root(),
    )
    .env("IFMATCH_BIN", &gateway)
    .env("IFMATCH_SERVER", "bucket")
    .passes(context.deadline)?;
    run("--doc")?;
    // It sets the time of day of its process.
    cargo(
        context,
        "test --locked --package ifmatch-runtime --test clock",
    )
}

/// Waits until no other step builds or runs the gateway in target/debug: `cargo test` runs it with the default features there.
fn lock_gateway(workspace: &Workspace) -> Result<File> {
    fs::create_dir_all(workspace.target())?;
    let lock = File::create(workspace.target().join("gateway.lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Builds the gateway with all features, and returns the path of a copy: later builds may replace the original while it is in use.
pub(crate) fn gateway(context: &Context<'_>) -> Result<PathBuf> {
    let _lock = lock_gateway(context.workspace)?;
    // With a test beside it, its dependencies have the same features as for the tests, and are compiled once.
    cargo(
        context,
        &format!("build --locked {FULL} --bin ifmatch --test worker_register"),
    )?;
    let binary = format!("ifmatch{}", std::env::consts::EXE_SUFFIX);
    let folder = context.workspace.target().join("gateway-under-test");
    fs::create_dir_all(&folder)?;
    let copy = folder.join(&binary);
    // Another step may run the previous copy at this moment, so it is replaced, not overwritten.
    let new = folder.join(format!("{binary}.{}", std::process::id()));
    fs::copy(context.workspace.target().join("debug").join(&binary), &new)?;
    fs::rename(&new, &copy)?;
    Ok(copy)
}

/// The official clients of Azure and S3, and programs that use either API, against the gateway.
fn sdk(context: &Context<'_>) -> Result {
    sdk::check(context, &gateway(context)?)
}

/// An operator's jobs, by clicks, and what an attacker would try. The npm package's client, in pages and processes.
fn console(context: &Context<'_>) -> Result {
    let gateway = gateway(context)?;
    // As `servers` does, for the same features.
    cargo(
        context,
        &format!("build --locked {FULL} --examples --test worker_register"),
    )?;
    let notes = format!("debug/examples/notes{}", std::env::consts::EXE_SUFFIX);
    npm::require(context.workspace, npm::CONSOLE, context.deadline)?;
    Run::new("node", &context.workspace.root().join(npm::CONSOLE))
        .args(["--test", "--test-reporter", "spec", "tests"])
        .env("IFMATCH_BIN", gateway)
        .env("IFMATCH_NOTES", context.workspace.target().join(notes))
        .passes(context.deadline)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::step::Tool;

    fn names(only: &[&str]) -> Result<Vec<&'static str>> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        Ok(chosen(&only)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn each_step_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = all().map(|step| step.name).collect();
        assert_eq!(names.len(), all().count());
    }

    const WORKFLOW: &str = include_str!("../../.github/workflows/test.yml");

    /// Returns the steps of each lane of the workflow.
    fn lanes() -> Vec<Vec<&'static str>> {
        let (_, lanes) = WORKFLOW.split_once("        lane:\n").unwrap();
        let lanes = lanes
            .lines()
            .map_while(|line| line.strip_prefix("          - "));
        lanes.map(|lane| lane.split(' ').collect()).collect()
    }

    /// The lanes of the workflow run all that this command runs.
    #[test]
    fn each_step_is_in_a_lane_of_the_workflow() {
        let lanes: BTreeSet<&str> = lanes().into_iter().flatten().collect();
        let steps = [NATIVE, SERVED].into_iter().flatten();
        assert_eq!(lanes, steps.map(|step| step.name).collect());
    }

    /// Returns `true` if a lane has the tool: by the workflow, or since its step can install it there, as root on Debian with rustup.
    fn provides(tool: &Tool) -> bool {
        match tool.probe.first() {
            // Debian's is too old.
            Some(&"node" | &"npm") => WORKFLOW.contains("actions/setup-node@"),
            _ if tool.install.starts_with("rustup component add ") => {
                WORKFLOW.contains("container: rust:")
            }
            _ => tool.install.starts_with("apt-get install "),
        }
    }

    #[test]
    fn each_lane_has_the_tools_of_its_steps() {
        for lane in lanes() {
            let steps = all().filter(|step| lane.contains(&step.name));
            for (step, tool) in
                steps.flat_map(|step| step.needs.iter().map(move |tool| (step, tool)))
            {
                assert!(
                    provides(tool),
                    "{lane:?}: the workflow doesn't install {}, which {} needs",
                    tool.name,
                    step.name
                );
            }
        }
    }

    /// A step that calls npm, Node or Python says so: its tools are checked before the first step runs.
    #[test]
    fn steps_name_the_tools_that_they_call() {
        let sources = [
            (
                "servers",
                include_str!("ci.rs")
                    .split_once("\nfn servers(")
                    .unwrap()
                    .1
                    .split_once("\n}")
                    .unwrap()
                    .0,
            ),
            (
                "console",
                include_str!("ci.rs")
                    .split_once("\nfn console(")
                    .unwrap()
                    .1
                    .split_once("\n}")
                    .unwrap()
                    .0,
            ),
            ("js", include_str!("js.rs")),
            ("platforms", include_str!("platforms.rs")),
            ("wasm", include_str!("wasm/in_node.rs")),
            ("component", include_str!("component.rs")),
            ("worker", include_str!("worker/check.rs")),
            ("sdk", include_str!("sdk.rs")),
        ];
        for (name, source) in sources {
            let step = all().find(|step| step.name == name).unwrap();
            let needs = |tool: &Tool| step.needs.iter().any(|need| need.name == tool.name);
            for (call, tool) in [
                ("npm::require", &NPM),
                ("npm::require", &NODE),
                ("Run::new(\"node\"", &NODE),
                ("python(", &sdk::PYTHON),
            ] {
                assert!(
                    !source.contains(call) || needs(tool),
                    "{name} calls {call} and doesn't need {}",
                    tool.name
                );
            }
        }
    }

    #[test]
    fn selected_steps_keep_their_order() {
        assert_eq!(names(&["doc", "format"]).unwrap(), ["format", "doc"]);
    }

    #[test]
    fn an_unknown_step_is_an_error() {
        assert!(
            names(&["format", "fromat"])
                .unwrap_err()
                .to_string()
                .contains("`fromat`")
        );
    }
}
