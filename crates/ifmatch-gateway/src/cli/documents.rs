//! Completions for shells, and manual pages, both from the definition of the command line.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::terminal::print_text;
use crate::error::Error;

/// `ifmatch completions …`
#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// `ifmatch man …`
#[derive(Args)]
pub(super) struct ManArgs {
    /// Folder for the pages, which is created if it is missing.
    folder: PathBuf,
}

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ifmatch completions bash > /etc/bash_completion.d/ifmatch
  ifmatch completions zsh > ~/.zfunc/_ifmatch
  ifmatch completions fish > ~/.config/fish/completions/ifmatch.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Example:
  ifmatch man /usr/local/share/man/man1
  man ifmatch-serve";

/// Prints the completions for a shell.
///
/// # Errors
/// Fails if stdout is closed.
pub(super) fn print_completions(args: &CompletionsArgs, command: &mut clap::Command) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "ifmatch", &mut text);
    print_text(&String::from_utf8_lossy(&text))
}

/// Writes a page for each command.
///
/// # Errors
/// Fails if the folder cannot be written.
pub(super) fn write_manual(args: &ManArgs, command: clap::Command) -> Result<(), Error> {
    let written =
        fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(command, &args.folder).map(drop));
    written.map_err(|error| Error::runtime(format!("cannot write the pages to {}: {error}", args.folder.display())))
}
