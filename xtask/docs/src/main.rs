//! `cargo xtask docs`: builds the documentation site from docs/, and checks its links.
#![expect(
    clippy::print_stdout,
    reason = "a command-line tool reports to its terminal"
)]

mod check;
mod links;
mod plot;
mod reference;
#[cfg(test)]
mod session;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mdbook_driver::MDBook;
use mdbook_driver::config::Config;
use xtask::Result;
use xtask::workspace::Workspace;

/// Builds the documentation site into target/book, and checks its links.
#[derive(Parser)]
#[command(name = "cargo xtask docs", bin_name = "cargo xtask docs")]
struct Options {
    /// Opens the site in a browser.
    #[arg(long, conflicts_with_all = ["reference", "plots"])]
    open: bool,
    /// Writes the reference of settings and metrics from the gateway's definitions instead.
    #[arg(long, conflicts_with = "plots")]
    reference: bool,
    /// Draws the ratios that benches/benchmarks.md records instead.
    #[arg(long)]
    plots: bool,
}

fn main() -> ExitCode {
    xtask::exit(run(&Options::parse()))
}

fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    if options.reference {
        return reference::write(workspace.root());
    }
    if options.plots {
        return plot::write(workspace.root());
    }
    let site = build(&workspace)?;
    let broken = check::broken_links(&site)?;
    if !broken.is_empty() {
        return Err(format!("the site has broken links:\n{}", broken.join("\n")).into());
    }
    let first = site.join("index.html");
    println!("{}", first.display());
    if options.open {
        opener::open_browser(&first)?;
    }
    Ok(())
}

/// Builds the site, and returns its folder.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let source = workspace.root().join("docs");
    let site = workspace.target().join("book");
    let mut config = Config::from_disk(source.join("book.toml"))?;
    config.build.build_dir.clone_from(&site);
    config.set("output.html.git-repository-url", links::REPOSITORY)?;
    config.set(
        "output.html.edit-url-template",
        format!("{}/edit/main/docs/{{path}}", links::REPOSITORY),
    )?;
    let mut book = MDBook::load_with_config(source, config)?;
    book.with_preprocessor(links::Links);
    book.build()?;
    Ok(site)
}
