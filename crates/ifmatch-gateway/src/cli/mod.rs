//! The command line.

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{lease, proxy, serve};
use crate::config::Config;
use crate::config::proxy::ProxyConfig;
use crate::config::proxy_settings::ProxySettings;
use crate::config::settings::Settings;
use crate::error::Error;

pub(crate) mod terminal;

/// A blob service whose conditional writes lose no update.
#[derive(Parser)]
#[command(name = "ifmatch", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve blobs from a folder or an object store.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Forward requests to other servers, and answer from a shared cache what may be stored.
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(Box<Proxying>),
    /// List, show and break the leases of a running gateway.
    Lease(lease::Lease),
}

#[derive(Args)]
struct Serve {
    /// TOML file with the same names as the flags: `max-body-size = "1GiB"`. Flags and environment win over it.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Args)]
struct Proxying {
    /// TOML file with the same names as the flags: those under Upstreams and Cache in the table `[proxy]`. Flags and
    /// environment win over it.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    proxy: ProxySettings,

    #[command(flatten)]
    settings: Settings,
}

const EXAMPLES: &str = "\
Examples:
  Serve blobs from a folder, for Azure SDKs as well:
    ifmatch serve --data ./data

  A shared cache in front of a server on this machine:
    ifmatch proxy --upstream http://127.0.0.1:8000

  List the leases of a running gateway:
    ifmatch lease list

  Show all settings, with examples:
    ifmatch help serve";

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

const PROXY_EXAMPLES: &str = "\
Examples:
  A cache in front of a server on this machine:
    ifmatch proxy --upstream http://127.0.0.1:8000
    curl -i http://127.0.0.1:10000/

  For other machines, over TLS, with a gigabyte for stored responses, and a token for purging:
    openssl rand -hex 32 > write.token
    ifmatch proxy --upstream http://10.0.0.7:8080,http://10.0.0.8:8080 --health-path /health --cache 1GiB \\
        --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem --write-token-file write.token

  Remove what is stored below a path:
    curl -X DELETE 'http://127.0.0.1:10000/-/cache?prefix=http://127.0.0.1:10000/docs/'

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
        Command::Proxy(proxy) => configure_proxy(*proxy).and_then(|config| proxy::run(&config)),
        Command::Lease(lease) => lease::run(&lease),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// The last words of the process, to the person who started it. A closed stderr changes nothing.
fn say(error: &Error) {
    drop(writeln!(stderr(), "ifmatch: {error}"));
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(args)?)
}

/// The command with its defaults in the help, each taken from the one place that states it.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("serve", |serve| with_defaults(serve, Settings::shown_defaults())).mut_subcommand(
        "proxy",
        |proxy| {
            let proxy = with_defaults(proxy, Settings::shown_defaults());
            of_proxy(with_defaults(proxy, ProxySettings::shown_defaults()))
        },
    )
}

fn with_defaults(command: clap::Command, defaults: Vec<(&'static str, String)>) -> clap::Command {
    defaults.into_iter().fold(command, |command, (flag, value)| {
        command.mut_arg(flag, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let long = arg.get_long_help().map_or_else(|| help.clone(), ToString::to_string);
            arg.help(format!("{help} [default: {value}]")).long_help(format!("{long}\n\n[default: {value}]"))
        })
    })
}

/// What the server's flags mean to a proxy; those of storage are refused, and not shown.
fn of_proxy(command: clap::Command) -> clap::Command {
    let command = STORAGE.iter().fold(command, |command, flag| command.mut_arg(flag, |arg| arg.hide(true)));
    [
        ("read_token", "Bearer token that may read /-/metrics and /-/cache; can be given several times. Prefer a file"),
        (
            "write_token",
            "Bearer token that may also purge by DELETE /-/cache; can be given several times. Prefer a file",
        ),
    ]
    .into_iter()
    .fold(command, |command, (flag, help)| command.mut_arg(flag, |arg| arg.help(help).long_help(help)))
}

/// The flags of storage.
const STORAGE: [&str; 5] = ["data", "store", "require_conditions", "listen_tables", "accounts"];

fn configure(serve: Serve) -> Result<Config, Error> {
    Config::from_settings(serve.settings.or(from_file(serve.config.as_deref())?))
}

fn configure_proxy(proxying: Proxying) -> Result<ProxyConfig, Error> {
    let flags = Settings { proxy: proxying.proxy, ..proxying.settings };
    ProxyConfig::from_settings(flags.or(from_file(proxying.config.as_deref())?))
}

fn from_file(path: Option<&Path>) -> Result<Settings, Error> {
    Ok(path.map(Settings::from_file).transpose()?.unwrap_or_default())
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
        let proxy = command.find_subcommand_mut("proxy").unwrap();
        for arg in proxy.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "config")) {
            let (flag, id) = (arg.get_long().unwrap(), arg.get_id().as_str());
            assert_eq!(arg.get_env().unwrap().to_str().unwrap(), format!("IFMATCH_{}", id.to_uppercase()));
            let in_its_place = ["", "[proxy]\n"].into_iter().any(|table| {
                let error = Settings::from_toml(&format!("{table}{flag} = {{}}")).map(|_| ()).unwrap_err();
                !error.to_string().contains("unknown field")
            });
            assert!(in_its_place, "{flag}");
        }
    }

    #[test]
    fn the_help_of_the_proxy_has_its_own_flags_and_none_of_storage() {
        let mut command = command();
        let help = command.find_subcommand_mut("proxy").unwrap().render_long_help().to_string();
        for shown in ["--upstream <URL>", "[default: 256MiB]", "[default: 60s]", "--write-token-file", "curl -X DELETE"]
        {
            assert!(help.contains(shown), "{shown} is missing in\n{help}");
        }
        for flag in STORAGE {
            assert!(!help.contains(&format!("--{}", flag.replace('_', "-"))), "{flag} is shown in\n{help}");
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
        assert_eq!((config.server.threads, config.server.listen.port()), (Some(4), 1));
    }
}
