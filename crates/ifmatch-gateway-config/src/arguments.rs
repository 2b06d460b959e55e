//! The settings as arguments of the servers' commands. Each field is one.

use clap::builder::{OsStr, Resettable};
use clap::{Arg, ArgAction, Args, Command};

use super::proxy::DEFAULT_CACHE;
use super::proxy_settings::ProxySettings;
use super::settings::Settings;
use super::{S3, TABLES};

/// Tells whether a setting is set.
type IsSet = fn(&Settings) -> bool;

/// The settings of `ifmatch serve` that make no sense for a proxy: the id of each argument, and whether it is set.
pub const OF_STORAGE: [(&str, IsSet); 12] = [
    ("data", |settings| settings.data.is_some()),
    ("store", |settings| settings.store.is_some()),
    ("register_may_lose", |settings| settings.register_may_lose),
    ("require_conditions", |settings| settings.require_conditions),
    ("encrypted_at_rest", |settings| settings.encrypted_at_rest),
    ("listen_tables", |settings| {
        settings
            .listen_tables
            .is_some_and(|listen| listen.address().is_some())
    }),
    ("listen_s3", |settings| {
        settings
            .listen_s3
            .is_some_and(|listen| listen.address().is_some())
    }),
    ("s3_host", |settings| !settings.s3_host.is_empty()),
    ("accounts", |settings| !settings.accounts.is_empty()),
    ("public_read", |settings| settings.public_read),
    ("cors_origin", |settings| !settings.cors_origin.is_empty()),
    ("max_waits", |settings| settings.max_waits.is_some()),
];

/// Adds the arguments of `ifmatch serve`.
pub fn serve(command: Command) -> Command {
    // The fields have no defaults: a listener that wasn't asked for may be missing.
    command
        .args(all::<Settings>())
        .mut_arg("listen_tables", |arg| arg.default_value(TABLES.to_string()))
        .mut_arg("listen_s3", |arg| arg.default_value(S3.to_string()))
}

/// Adds the arguments of `ifmatch proxy`: the shared ones have texts of their own.
pub fn proxy(command: Command) -> Command {
    let command = command
        .args(all::<ProxySettings>())
        .args(all::<Settings>())
        .mut_arg("cache", |arg| arg.default_value(DEFAULT_CACHE.to_string()))
        .mut_arg("register", |arg| arg.help_heading("Upstreams"));
    let command = OF_STORAGE.iter().fold(command, |command, (id, _)| {
        command.mut_arg(id, |arg| arg.hide(true))
    });
    [
        ("read_token", "Bearer token for reading /-/metrics and /-/cache. Repeatable"),
        ("register", "Register for --guard-writes, such as `redb:///FILE` or `postgres://USER@HOST/DATABASE`; by default, memory"),
        ("write_token", "Bearer token for purges as well (DELETE /-/cache). Repeatable"),
    ]
    .into_iter()
    .fold(command, |command, (id, help)| command.mut_arg(id, |arg| arg.help(help).long_help(help)))
}

/// Returns the arguments of these settings, each with its variable. A switch may have a value, to override the file.
fn all<S: Args>() -> Vec<Arg> {
    let complete = |arg: &Arg| {
        let arg = arg
            .clone()
            .env(format!("IFMATCH_{}", arg.get_id().as_str().to_uppercase()));
        if !matches!(arg.get_action(), ArgAction::SetTrue) {
            return arg;
        }
        let switch = arg.action(ArgAction::Set).value_name("BOOL");
        switch
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    };
    S::augment_args(Command::new("settings"))
        .get_arguments()
        .map(complete)
        .collect()
}

/// Returns the keys of these settings in the file, which are their flags.
pub(super) fn keys<S: Args>() -> Vec<String> {
    all::<S>()
        .iter()
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect()
}

/// Moves the defaults into the texts, so only given values are parsed; and the variables and possible values into the long ones,
/// so that `-h` has a line per flag.
pub fn in_texts(command: Command) -> Command {
    command.mut_args(|arg| {
        let Some(variable) = arg
            .get_env()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            return arg;
        };
        let default = arg
            .get_default_values()
            .first()
            .filter(|value| *value != "false");
        let default = default.map(|value| format!("[default: {}]", value.to_string_lossy()));
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let mut long = arg
            .get_long_help()
            .map_or_else(|| help.clone(), ToString::to_string);
        if let Some(default) = default {
            help = format!("{help} {default}");
            long = format!("{long}\n\n{default}");
        }
        arg.help(help)
            .long_help(format!("{long}\n\n[env: {variable}]"))
            .hide_env(true)
            .hide_possible_values(true)
            .default_value(Resettable::<OsStr>::Reset)
    })
}

/// Returns the settings of a command line without arguments.
#[expect(
    clippy::expect_used,
    reason = "each setting is optional or has a valid default"
)]
pub(super) fn defaults<S: Args>() -> S {
    let command = S::augment_args(Command::new("settings"));
    let parsed = command
        .try_get_matches_from(["settings"])
        .and_then(|none| S::from_arg_matches(&none));
    parsed.expect("the defaults are valid")
}
