//! The settings in force, with their source. Secrets are not shown.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::Serialize;

use crate::config::file::ConfigFile;
use crate::config::shown_url::{HIDDEN, without_secrets};

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InForce {
    name: String,
    value: String,
    source: &'static str,
}

/// Returns the settings of a server that are in force: those set by flags, environment or file, and the defaults.
pub(super) fn list(
    server: &str,
    args: impl IntoIterator<Item = OsString>,
    defaults: &[(&'static str, String)],
    file: &ConfigFile,
) -> Vec<InForce> {
    let command = super::command();
    let Some(known) = command.find_subcommand(server) else { return Vec::new() };
    let matches = super::command().try_get_matches_from(args).ok();
    let matches = matches.as_ref().and_then(|matches| matches.subcommand_matches(server));
    let of = |arg: &clap::Arg| {
        let name = arg.get_long()?;
        let default = defaults.iter().find(|(id, _)| id == arg.get_id()).map(|(_, value)| value.clone());
        let given = matches.and_then(|matches| given(matches, arg.get_id().as_str()));
        let (value, source) =
            given.or_else(|| Some((file.shown_value(name)?, "file"))).or_else(|| Some((default?, "default")))?;
        let value = if arg.is_hide_env_values_set() { HIDDEN.to_owned() } else { value };
        Some(InForce { name: format!("--{name}"), value, source })
    };
    known.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(of).collect()
}

/// Returns the value of a flag or a variable without its secrets, and which of both it is.
fn given(matches: &ArgMatches, id: &str) -> Option<(String, &'static str)> {
    let source = match matches.value_source(id)? {
        ValueSource::CommandLine => "flag",
        ValueSource::EnvVariable => "environment",
        _ => return None,
    };
    let values = matches.get_raw(id)?.map(|value| without_secrets(&value.to_string_lossy()));
    Some((values.collect::<Vec<_>>().join(", "), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_a_source_and_secrets_no_value() {
        let args =
            ["ifmatch", "serve", "--data", "/d", "--write-token", "secret-secret", "--store", "s3://u:secret@h/x"];
        let file = ConfigFile::of("max-waits = 2\nmax-requests = 7\naccounts = [{ name = 'a', key = 'c2VjcmV0' }]\n");
        let listed = list("serve", args.map(OsString::from), &[("max_requests", "1000".to_owned())], &file);
        let of = |name: &str| listed.iter().find(|setting| setting.name == name).map(|s| (&*s.value, s.source));
        assert_eq!(of("--data"), Some(("/d", "flag")));
        assert_eq!(of("--max-waits"), Some(("2", "file")));
        assert_eq!(of("--max-requests"), Some(("7", "file")));
        assert_eq!(of("--store"), Some(("s3://(hidden)@h/x", "flag")));
        for secret in ["--write-token", "--accounts"] {
            assert_eq!(of(secret).map(|(value, _)| value), Some("(hidden)"), "{secret}");
        }
        assert!(of("--tls-cert").is_none());
    }

    #[test]
    fn a_proxy_shows_no_secrets_of_its_peers_and_routes() {
        let args = ["ifmatch", "proxy", "--purge-peer", "http://a/?key=secret,http://me:secret@b"];
        let file = ConfigFile::of(
            "[[proxy.route]]\nmatch = '/a'\nupstream = ['http://c']\n\
             request-headers = { set = { authorization = 'secret' }, remove = ['x'] }\n",
        );
        let listed = list("proxy", args.map(OsString::from), &[], &file);
        let of = |name: &str| listed.iter().find(|setting| setting.name == name).map(|setting| &*setting.value);
        assert_eq!(of("--purge-peer"), Some("http://a/?(hidden), http://(hidden)@b/"));
        let route = r#"[{"match":"/a","request-headers":"(hidden)","upstream":["http://c"]}]"#;
        assert_eq!(of("--route"), Some(route));
    }
}
