//! The command line.

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::proxy::ProxyConfig;
use ifmatch_gateway_config::sources::{InForce, Sources};
use ifmatch_gateway_config::{Config, arguments};

use ifmatch_gateway_commands::{backup, check, guard, health, lease, verify};

use crate::commands::{bucket, check_proxy, check_serve, proxy, register, serve};

mod reference;
mod tips;

/// Blob storage and a caching proxy, with conditional writes that prevent lost updates.
#[derive(Parser)]
#[command(name = "ifmatch", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve blobs from a folder or an object store.
    #[command(after_help = SHORT_HELP, after_long_help = SERVE_EXAMPLES)]
    Serve(ServerArgs),
    /// Cache and forward requests to other servers.
    #[command(after_help = SHORT_HELP, after_long_help = PROXY_EXAMPLES)]
    Proxy(ServerArgs),
    /// List, show and break the leases of a running gateway.
    Lease(lease::LeaseArgs),
    /// Run a command while holding a lock, like flock across machines.
    #[command(after_help = guard::LOCK_EXAMPLES)]
    Lock(guard::LockArgs),
    /// Run a command only while this machine is the elected leader.
    #[command(after_help = guard::ELECT_EXAMPLES)]
    Elect(guard::ElectArgs),
    /// Check whether a server honours conditional requests.
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// Prepare, inspect and copy registers.
    Register(register::RegisterArgs),
    /// Check that all stored blobs are intact.
    #[command(after_help = verify::VERIFY_EXAMPLES)]
    Verify(verify::VerifyArgs),
    /// Back up a running gateway's data folder, or a bucket.
    #[command(after_help = backup::EXAMPLES)]
    Backup(backup::BackupArgs),
    /// Copy a data folder into a bucket that several gateways will share.
    #[command(after_help = bucket::RESTORE_EXAMPLES)]
    Restore(bucket::RestoreArgs),
    /// Remove orphaned files from a data folder.
    #[command(after_help = verify::GC_EXAMPLES)]
    Gc(verify::GcArgs),
    /// Check whether a gateway or proxy is up.
    #[command(after_help = health::EXAMPLES)]
    Health(health::HealthArgs),
    /// Print shell completions.
    #[command(after_help = reference::COMPLETIONS_EXAMPLES)]
    Completions(reference::CompletionsArgs),
    /// Write the manual pages.
    #[command(after_help = reference::MAN_EXAMPLES)]
    Man(reference::ManArgs),
    /// Print a page of the documentation: all settings, or all metrics.
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
}

/// `ifmatch serve …` and `ifmatch proxy …`.
#[derive(Args)]
struct ServerArgs {
    // The first field, since the others take their values out.
    #[command(flatten)]
    given: GivenArguments,

    /// TOML file with settings, such as `max-body-size = "1GiB"`.
    ///
    /// Keys are flags without `--`. The proxy's own, such as `upstream`, are in the table `[proxy]`. Flags and environment override
    /// the file.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CONFIG")]
    config: Option<PathBuf>,

    /// Check the settings and their files, and exit.
    ///
    /// Prints `ok` and exits with 0, or prints the error and exits with 2. Binds, writes and connects to nothing.
    #[arg(long)]
    check: bool,
}

/// All flags and variables. [`arguments`] adds the settings to the command.
struct GivenArguments(ArgMatches);

impl Args for GivenArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl FromArgMatches for GivenArguments {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given.clone()))
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = given.clone();
        Ok(())
    }
}

/// The end of the short help of the servers.
const SHORT_HELP: &str =
    "More: --help shows all settings, their variables (IFMATCH_…), examples and signals.";

const EXAMPLES: &str = "\
Examples:
  Serve blobs from a folder:
    ifmatch serve --data ./data

  Cache the responses of a server on this machine:
    ifmatch proxy --upstream http://127.0.0.1:8000

  Back up on one machine at a time:
    ifmatch lock http://127.0.0.1:10000/locks/backup -- ./backup.sh

  All settings and more examples:
    ifmatch help serve

Commands about a gateway (lease, backup, health) find it by --url, IFMATCH_URL or at http://127.0.0.1:10000. Commands about one \
URL (lock, elect, check) take it as an argument. Pass a token with --token-file FILE, or set IFMATCH_TOKEN.";

const SERVE_EXAMPLES: &str = "\
Examples:
  A folder on this machine, and a blob that must not exist yet:
    ifmatch serve --data ./data
    curl -i -T notes.txt -H 'If-None-Match: *' http://127.0.0.1:10000/docs/notes.txt

  Other machines, with a token and TLS:
    openssl rand -hex 32 > write.token
    ifmatch serve --data ./data --listen 0.0.0.0:443 \\
        --write-token-file write.token \\
        --tls-cert cert.pem --tls-key key.pem

  A self-signed certificate for tests, which clients trust with --ca cert.pem:
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 \\
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \\
        -addext basicConstraints=critical,CA:FALSE

  Azure SDKs, with UseDevelopmentStorage=true:
    ifmatch serve --data ./data

  S3 clients, with the access key ID NAME and the secret key KEY:
    ifmatch serve --data ./data --accounts NAME:KEY \\
        --write-token-file write.token
    aws --endpoint-url http://127.0.0.1:10003 s3 ls s3://docs

  An S3 bucket, with leases and other records in a folder:
    AWS_REGION=eu-west-1 \\
        ifmatch serve --store s3://my-bucket/prefix --data ./records

Signals:
  SIGHUP           reloads --config, the certificates and the tokens; no request is lost
  SIGINT, SIGTERM  stop after the requests in flight; a second one stops now

Exit codes:
  0   stopped by a signal, with all requests complete
  1   failed to start, or cut off requests
  2   invalid flags, environment or file
  3   the data folder or the register file is damaged, or a newer release wrote it
  11  another process uses the data folder, the cache folder or the register file";

const PROXY_EXAMPLES: &str = "\
Examples:
  A server on this machine:
    ifmatch proxy --upstream http://127.0.0.1:8000
    curl -i http://127.0.0.1:10000/

  Two upstreams with health checks, TLS, and a token for purging:
    openssl rand -hex 32 > write.token
    ifmatch proxy --upstream http://10.0.0.7:8080,http://10.0.0.8:8080 \\
        --health-path /health --cache 1GiB --listen 0.0.0.0:443 \\
        --tls-cert cert.pem --tls-key key.pem --write-token-file write.token

  Purge everything below a path:
    curl -X DELETE 'http://127.0.0.1:10000/-/cache?prefix=http://127.0.0.1:10000/docs/'

  Soft purge: revalidate before use instead:
    curl -X DELETE 'http://127.0.0.1:10000/-/cache?prefix=http://127.0.0.1:10000/docs/&soft=true'

Signals:
  SIGHUP           reloads --config, upstreams, certificates and tokens; no request is lost
  SIGINT, SIGTERM  stop after the requests in flight; a second one stops now

Exit codes:
  0   stopped by a signal, with all requests complete
  1   failed to start, or cut off requests
  2   invalid flags, environment or file
  3   the register file is damaged
  11  another process uses the cache folder or the register file";

/// Runs the command line of the process. Prints errors to stderr.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    report_panics_that_are_not_contained();
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Also help and version, which clap prints to stdout. A closed stream is ignored.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if matches!(cli.command, Command::Serve(_) | Command::Proxy(_)) {
        let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for warning in tips::for_variables(&command(), set) {
            // A closed stderr is ignored.
            drop(writeln!(stderr(), "warning: {warning}"));
        }
    }
    let done = match cli.command {
        Command::Serve(serve) if serve.check => {
            configure(&serve).and_then(|config| check_serve(&config))
        }
        Command::Proxy(proxy) if proxy.check => {
            configure_proxy(&proxy).and_then(|config| check_proxy(&config))
        }
        Command::Serve(serve) => serve::run(&|| configure(&serve)),
        Command::Proxy(proxy) => proxy::run(&|| configure_proxy(&proxy)),
        Command::Lease(lease) => lease::run(&lease),
        Command::Lock(args) => return exit(guard::lock(&args)),
        Command::Elect(args) => return exit(guard::elect(&args)),
        Command::Check(args) => return exit(check::run(&args)),
        Command::Register(args) => register::run(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Backup(args) => match args.bucket() {
            Some((url, register, to)) => bucket::backup(url, register, to),
            None => backup::run(&args),
        },
        Command::Restore(args) => bucket::restore(&args),
        Command::Gc(args) => verify::gc(&args),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => reference::print_completions(&args, &mut command()),
        Command::Man(args) => reference::write_manual(&args, command()),
        Command::Reference(args) => reference::print(&args, &command()),
    };
    exit(done.map(|()| 0))
}

/// Leaves the panics of a damaged index to the error that it becomes.
fn report_panics_that_are_not_contained() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ifmatch_redb::panic_is_contained() {
            report(panic);
        }
    }));
}

/// Returns the exit code of a command. Prints its error to stderr.
fn exit(done: Result<u8, Error>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // A closed stderr is ignored.
            drop(writeln!(stderr(), "ifmatch: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = args.collect();
    let matches = command()
        .try_get_matches_from(&args)
        .map_err(|error| tips::add(error, &command(), &args))?;
    Cli::from_arg_matches(&matches)
}

/// Returns the command, with the settings of the servers, and their defaults in the help.
fn command() -> clap::Command {
    with_settings()
        .mut_subcommand("serve", arguments::in_texts)
        .mut_subcommand("proxy", arguments::in_texts)
}

/// Returns the command with the settings of the servers, which have their defaults.
fn with_settings() -> clap::Command {
    Cli::command()
        .mut_subcommand("serve", arguments::serve)
        .mut_subcommand("proxy", arguments::proxy)
}

fn configure(args: &ServerArgs) -> Result<Config, Error> {
    let sources = Sources::read(&args.given.0, args.config.as_deref())?;
    let mut config =
        Config::from_settings(sources.of_serve()?).map_err(|error| sources.locate(error))?;
    config.server.in_force = in_force(&sources, "serve");
    Ok(config)
}

fn configure_proxy(args: &ServerArgs) -> Result<ProxyConfig, Error> {
    let sources = Sources::read(&args.given.0, args.config.as_deref())?;
    let mut config =
        ProxyConfig::from_settings(sources.of_proxy()?).map_err(|error| sources.locate(error))?;
    config.server.in_force = in_force(&sources, "proxy");
    Ok(config)
}

/// Returns the settings in force of a server, which is a subcommand.
fn in_force(sources: &Sources<'_>, server: &str) -> Vec<InForce> {
    with_settings()
        .find_subcommand(server)
        .map_or_else(Vec::new, |command| sources.in_force(command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifmatch_gateway_config::settings::Settings;

    #[test]
    fn the_command_is_valid_and_its_help_shows_the_defaults() {
        let mut command = command();
        command.clone().debug_assert();
        let help = command
            .find_subcommand_mut("serve")
            .unwrap()
            .render_long_help()
            .to_string();
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
    fn the_short_help_of_a_server_stays_short() {
        let mut command = command();
        for (server, most) in [("serve", 55), ("proxy", 58)] {
            let help = command
                .find_subcommand_mut(server)
                .unwrap()
                .render_help()
                .to_string();
            assert!(
                help.lines().count() <= most
                    && help.lines().all(|line| line.chars().count() <= 100),
                "{help}"
            );
        }
    }

    /// clap breaks longer lines without regard to their indentation, and doesn't join lines into paragraphs.
    #[test]
    fn examples_fit_a_terminal_and_paragraphs_are_one_line() {
        fn check(command: &mut clap::Command) {
            let text = command
                .get_after_long_help()
                .or_else(|| command.get_after_help());
            let text = text.map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let is_prose = |line: &str| line.starts_with(|first: char| !first.is_whitespace());
                assert!(
                    is_prose(pair[0]) || pair[0].chars().count() <= 98,
                    "{}",
                    pair[0]
                );
                assert!(
                    !is_prose(pair[0]) || !is_prose(pair[1]) || pair[0].len() < 70,
                    "{}",
                    pair[0]
                );
            }
            command.get_subcommands_mut().for_each(check);
        }
        check(&mut command());
    }

    #[test]
    fn every_setting_has_a_flag_a_variable_and_a_key() {
        let mut command = command();
        for (server, tables) in [("serve", &[""][..]), ("proxy", &["", "[proxy]\n"])] {
            let server = command.find_subcommand_mut(server).unwrap();
            for arg in server
                .get_arguments()
                .filter(|arg| !["help", "config", "check"].contains(&arg.get_id().as_str()))
            {
                let (flag, id) = (arg.get_long().unwrap(), arg.get_id().as_str());
                assert_eq!(
                    arg.get_env().unwrap().to_str().unwrap(),
                    format!("IFMATCH_{}", id.to_uppercase())
                );
                assert_eq!(flag, id.replace('_', "-"));
                let is_key = |table: &&str| {
                    let error = Settings::from_toml(&format!("{table}{flag} = {{}}"))
                        .map(drop)
                        .unwrap_err();
                    !error.to_string().contains("unknown field")
                };
                assert!(tables.iter().any(is_key), "{flag}");
            }
        }
    }

    #[test]
    fn the_help_of_the_proxy_shows_no_storage_flags() {
        let mut command = command();
        let help = command
            .find_subcommand_mut("proxy")
            .unwrap()
            .render_long_help()
            .to_string();
        for shown in [
            "--upstream <URL>",
            "[default: 256MiB]",
            "[default: 60s]",
            "--write-token-file",
            "curl -X DELETE",
        ] {
            assert!(help.contains(shown), "{shown} is missing in\n{help}");
        }
        for (flag, _) in arguments::OF_STORAGE {
            assert!(
                !help.contains(&format!("--{}", flag.replace('_', "-"))),
                "{flag} is shown in\n{help}"
            );
        }
    }

    #[test]
    fn flags_override_the_file() {
        let file = std::env::temp_dir().join(format!("ifmatch-cli-{}", std::process::id()));
        std::fs::write(&file, "max-waits = 2\nlisten = '127.0.0.1:1'\ndata = 'd'").unwrap();
        let args = [
            "ifmatch",
            "serve",
            "--max-waits",
            "4",
            "--config",
            file.to_str().unwrap(),
        ];
        let Command::Serve(serve) = parse(args.iter().map(OsString::from)).unwrap().command else {
            panic!()
        };
        let config = configure(&serve);
        std::fs::remove_file(&file).unwrap();
        let config = config.unwrap();
        assert_eq!(
            (config.max_waits, config.server.settings.listen[0].port()),
            (4, 1)
        );
    }
}
