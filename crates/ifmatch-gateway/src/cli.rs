//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::Config;
use crate::error::Error;
use crate::settings::Settings;
use crate::{operator, serve};

/// A blob service whose conditional writes lose no update.
#[derive(Parser)]
#[command(name = "ifmatch", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve blobs from a folder or an object store.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// List, show and break the leases of a running gateway.
    Lease(operator::Lease),
}

#[derive(Args)]
struct Serve {
    /// TOML file with the same names as the flags: `max-body-size = "1GiB"`. Flags and environment win over it.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  Serve a folder on this machine, and put a file into it only if it is not there yet:
    ifmatch serve --data ./data
    curl -i -T notes.txt -H 'If-None-Match: *' http://127.0.0.1:10000/docs/notes.txt

  Serve other machines, with tokens and TLS:
    openssl rand -hex 32 > write.token
    ifmatch serve --data ./data --listen 0.0.0.0:443 --write-token-file write.token \\
        --tls-cert cert.pem --tls-key key.pem

  For Azure SDKs with UseDevelopmentStorage=true, blobs and tables, nothing to set:
    ifmatch serve --data ./data

  In front of an S3 bucket, with what is known of its objects kept in a folder:
    AWS_REGION=eu-west-1 ifmatch serve --store s3://my-bucket/prefix --data ./known

Exit code:
  0  stopped by SIGINT or SIGTERM, and all requests in flight were answered
  1  could not start, or had to cut requests in flight
  2  the flags, the environment or the file are wrong";

/// Runs the command that the process was started with, and says on stderr why it failed if it did.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors: clap knows where they go. A closed stream changes nothing.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let done = match cli.command {
        Command::Serve(serve) => configure(*serve).and_then(|config| serve::run(&config)),
        Command::Lease(lease) => operator::run(&lease),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[expect(clippy::print_stderr, reason = "the last words of the process, said to the person who started it")]
fn say(error: &Error) {
    eprintln!("ifmatch: {error}");
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(args)?)
}

/// The command with its defaults in the help, each taken from the one place that states it.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("serve", |serve| {
        Settings::shown_defaults().into_iter().fold(serve, |serve, (flag, value)| {
            serve.mut_arg(flag, |arg| {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let long = arg.get_long_help().map_or_else(|| help.clone(), ToString::to_string);
                arg.help(format!("{help} [default: {value}]")).long_help(format!("{long}\n\n[default: {value}]"))
            })
        })
    })
}

fn configure(serve: Serve) -> Result<Config, Error> {
    let file = serve.config.as_deref().map(Settings::from_file).transpose()?;
    Config::from_settings(serve.settings.or(file.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound_and_its_help_states_the_defaults() {
        let mut command = command();
        command.clone().debug_assert();
        let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        for default in [
            "[default: 127.0.0.1:10000]",
            "[default: 127.0.0.1:10002]",
            "[default: 5GiB]",
            "[default: 15s]",
            "[default: text]",
        ] {
            assert!(help.contains(default), "{default} is missing in\n{help}");
        }
    }

    #[test]
    fn every_setting_can_be_set_by_flag_variable_and_file() {
        let mut command = command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        for arg in serve.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "config")) {
            let (flag, id) = (arg.get_long().unwrap(), arg.get_id().as_str());
            let variable = arg.get_env().unwrap().to_str().unwrap();
            assert_eq!(variable, format!("IFMATCH_{}", id.to_uppercase()));
            assert_eq!(flag, id.replace('_', "-"));
            let wrong_type = format!("{flag} = {{}}");
            let error = Settings::from_toml(&wrong_type).map(|_| ()).unwrap_err().to_string();
            assert!(!error.contains("unknown field"), "{flag}: {error}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let folder = std::env::temp_dir().join(format!("ifmatch-cli-{}", std::process::id()));
        std::fs::write(&folder, "threads = 2\nlisten = '127.0.0.1:1'\ndata = 'd'").unwrap();
        let args = ["ifmatch", "serve", "--threads", "4", "--config", folder.to_str().unwrap()];
        let Command::Serve(serve) = parse(args.iter().map(OsString::from)).unwrap().command else { panic!() };
        let config = configure(*serve);
        std::fs::remove_file(&folder).unwrap();
        let config = config.unwrap();
        assert_eq!((config.threads, config.listen.port()), (Some(4), 1));
    }
}
