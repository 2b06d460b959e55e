//! `cargo xtask test`: every check that the repository has, as a list of steps.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::command::Run;
use crate::step::{Context, Step, Tool, run_all};
use crate::workspace::{Package, Workspace};
use crate::{Result, js, npm, package, sdk, tree, wasm, worker};

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs only this step; may be repeated.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Lists the steps.
    #[arg(long)]
    list: bool,
}

const RUSTFMT: Tool = Tool { probe: &["cargo", "fmt", "--version"], install: "rustup component add rustfmt" };
const CLIPPY: Tool = Tool { probe: &["cargo", "clippy", "--version"], install: "rustup component add clippy" };
const CXX: Tool = Tool { probe: &["c++", "--version"], install: "apt-get install g++" };
const FAKETIME: Tool = Tool { probe: &["faketime", "--version"], install: "apt-get install faketime" };
const GIT: Tool = Tool { probe: &["git", "--version"], install: "apt-get install git" };
const NODE: Tool = Tool { probe: &["node", "--version"], install: "apt-get install nodejs" };
const NPM: Tool = Tool { probe: &["npm", "--version"], install: "apt-get install npm" };
const PYTHON: Tool =
    Tool { probe: &["python3", "-c", "import ensurepip, venv"], install: "apt-get install python3-venv" };
const RCLONE: Tool = Tool { probe: &["rclone", "version"], install: "apt-get install rclone" };
const RESTIC: Tool = Tool { probe: &["restic", "version"], install: "apt-get install restic" };
const TAR: Tool = Tool { probe: &["tar", "--version"], install: "apt-get install tar" };
/// The sources of the standard library: see the toolchain of the `wasm` tasks.
const WASM: Tool = Tool { probe: wasm::PROBE, install: wasm::INSTALL };

/// In the order they run: the quick ones first, and what others need before them.
const STEPS: &[Step] = &[
    Step { name: "format", about: "cargo fmt changes nothing", minutes: 5, needs: &[RUSTFMT], run: format },
    Step { name: "tree", about: "crates depend on what their layer may", minutes: 5, needs: &[], run: tree::check },
    Step { name: "tidy", about: "the repository's rules (tests/tidy.rs)", minutes: 20, needs: &[GIT], run: tidy },
    Step { name: "clippy", about: "no warning in any target", minutes: 45, needs: &[CLIPPY], run: clippy },
    Step {
        name: "features",
        about: "each crate with no and all features",
        minutes: 45,
        needs: &[CLIPPY],
        run: features,
    },
    Step { name: "fuzz", about: "the fuzz targets build", minutes: 15, needs: &[CLIPPY, CXX], run: fuzz },
    Step { name: "doc", about: "the documentation builds, every link holds", minutes: 30, needs: &[], run: doc },
    Step { name: "npm", about: "what tests need from npm is installed", minutes: 15, needs: &[NPM], run: npm::install },
    Step {
        name: "test",
        about: "unit and integration tests, examples built",
        minutes: 60,
        needs: &[FAKETIME],
        run: test,
    },
    Step { name: "doctest", about: "the examples in the documentation", minutes: 45, needs: &[], run: doctest },
    Step {
        name: "sdk",
        about: "the Azure clients for Python and JavaScript; restic and rclone",
        minutes: 60,
        needs: &[NPM, PYTHON, RCLONE, RESTIC],
        run: sdk,
    },
    Step {
        name: "js",
        about: "the package for JavaScript: types, tables, Workers that use it",
        minutes: 45,
        needs: &[NODE, NPM, WASM],
        run: js::check,
    },
    Step {
        name: "wasm",
        about: "the tests of core and layer, as WebAssembly",
        minutes: 45,
        needs: &[NODE, WASM],
        run: wasm::in_node::check,
    },
    Step {
        name: "worker",
        about: "the Cloudflare Worker: size, tests, the Azure clients",
        minutes: 60,
        needs: &[NODE, NPM, PYTHON, WASM],
        run: worker::check,
    },
    Step {
        name: "package",
        about: "each crate packages and compiles alone",
        minutes: 60,
        needs: &[TAR],
        run: package::check,
    },
];

/// Runs the steps that were asked for, by default all.
pub(crate) fn run(options: &Options) -> Result {
    if options.list {
        for step in STEPS {
            println!("{:<10} {}", step.name, step.about);
        }
        return Ok(());
    }
    run_all(&chosen(&options.only)?, &Workspace::load()?)
}

fn chosen(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        return Err(format!("there is no step `{unknown}`: see cargo xtask test --list").into());
    }
    Ok(STEPS.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name)).collect())
}

fn cargo(context: &Context<'_>, args: &str) -> Result {
    Run::cargo(args, context.workspace.root()).passes(context.deadline)
}

fn format(context: &Context<'_>) -> Result {
    cargo(context, "fmt --all --check")
}

fn tidy(context: &Context<'_>) -> Result {
    cargo(context, "test --quiet --locked --package ifmatch-workspace --test tidy")
}

fn clippy(context: &Context<'_>) -> Result {
    cargo(context, "clippy --quiet --locked --workspace --all-targets -- -D warnings")
}

fn features(context: &Context<'_>) -> Result {
    for Package { name, has_features, .. } in context.workspace.published() {
        // What a dependent gets: the library and its features, without what the tests add to them.
        let targets = ["--no-default-features", "--all-features --all-targets"];
        for features in targets.iter().take(if *has_features { 2 } else { 1 }) {
            cargo(context, &format!("clippy --quiet --locked --package {name} {features} -- -D warnings"))?;
        }
    }
    Ok(())
}

/// They are a workspace of their own, since cargo-fuzz builds them in a way of its own.
fn fuzz(context: &Context<'_>) -> Result {
    Run::cargo("clippy --quiet --locked --manifest-path fuzz/Cargo.toml -- -D warnings", context.workspace.root())
        .env("CARGO_TARGET_DIR", context.workspace.target().join("fuzz"))
        .passes(context.deadline)?;
    cargo(context, "fmt --manifest-path fuzz/Cargo.toml --check")
}

fn doc(context: &Context<'_>) -> Result {
    Run::cargo("doc --quiet --locked --workspace --no-deps --all-features", context.workspace.root())
        .env("RUSTDOCFLAGS", "-D warnings")
        .passes(context.deadline)
}

fn test(context: &Context<'_>) -> Result {
    let gateway = gateway(context)?;
    // One set of features for every package and for the doctests, so that nothing is compiled twice. With its feature the
    // harness is for the Worker's toolchain only.
    Run::cargo(
        "test --locked --workspace --exclude wasm-harness --all-features --lib --bins --tests --examples",
        context.workspace.root(),
    )
    .env("IFMATCH_BIN", gateway)
    .passes(context.deadline)
}

/// Builds the gateway and returns where a copy lies: the one that cargo builds may be written again while it is used.
fn gateway(context: &Context<'_>) -> Result<PathBuf> {
    cargo(context, "build --locked --package ifmatch-gateway --bin ifmatch")?;
    let binary = format!("ifmatch{}", std::env::consts::EXE_SUFFIX);
    let kept = context.workspace.target().join("gateway-under-test");
    fs::create_dir_all(&kept)?;
    let kept = kept.join(&binary);
    fs::copy(context.workspace.target().join("debug").join(&binary), &kept)?;
    Ok(kept)
}

/// The official Azure clients against the gateway, and against Azurite, to show that the suite itself is right.
fn sdk(context: &Context<'_>) -> Result {
    sdk::check(context, &gateway(context)?)
}

fn doctest(context: &Context<'_>) -> Result {
    cargo(context, "test --locked --workspace --exclude wasm-harness --all-features --doc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Result<Vec<&'static str>> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        Ok(chosen(&only)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn all_steps_by_default() {
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
    }

    #[test]
    fn chosen_steps_keep_their_order() {
        assert_eq!(names(&["doc", "format"]).unwrap(), ["format", "doc"]);
    }

    #[test]
    fn a_misspelt_step_is_an_error_and_not_an_empty_run() {
        assert!(names(&["format", "fromat"]).unwrap_err().to_string().contains("`fromat`"));
    }
}
