//! Tips for what people try and clap can't guess: flags with another name, and values without a flag.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Commands, what people try with them, and the tip. Spaces separate commands, and the words that people try.
///
/// `-` is the program itself, and `lease.list` a command below another. Words in capitals are kinds of values: an http `URL`, a `STORE`,
/// a `NUMBER`, which may be an address, or any other `WORD`.
const TIPS: &[(&str, &str, &str)] = &[
    // Servers.
    ("serve", "WORD", "to serve a folder, use '--data DIR'"),
    (
        "serve",
        "STORE",
        "to serve an object store, use '--store URL'",
    ),
    (
        "serve",
        "URL",
        "to forward requests to a server, use 'ifmatch proxy --upstream URL'",
    ),
    (
        "proxy",
        "URL",
        "name the upstream by a flag: '--upstream URL'",
    ),
    (
        "serve proxy",
        "NUMBER",
        "to listen on another port, use '--listen PORT'",
    ),
    (
        "serve proxy",
        "--port -p",
        "use '--listen PORT' for localhost, or '--listen 0.0.0.0:PORT' for all addresses",
    ),
    (
        "serve proxy",
        "--host --bind --addr --address --interface",
        "use '--listen IP:PORT', such as '--listen 0.0.0.0:8080'",
    ),
    (
        "serve",
        "--dir --folder --path --root --directory --storage -d",
        "use '--data DIR'",
    ),
    ("serve", "--bucket --s3", "use '--store s3://BUCKET/PREFIX'"),
    (
        "serve",
        "--db --database --postgres --redis",
        "use '--register URL', such as postgres://USER@HOST/DATABASE",
    ),
    (
        "serve",
        "--upstream --target --backend --origin --url",
        "to forward requests, use 'ifmatch proxy --upstream URL'",
    ),
    (
        "serve proxy",
        "--token --token-file --auth --api-key --password",
        "use '--write-token-file FILE' and '--read-token-file FILE'",
    ),
    (
        "serve proxy",
        "--cert --certificate --tls --key",
        "use '--tls-cert FILE --tls-key FILE'",
    ),
    (
        "serve proxy",
        "-v --verbose --debug --log-level",
        "use '--log debug'",
    ),
    ("serve proxy", "-q --quiet --silent", "use '--log error'"),
    (
        "serve proxy",
        "-c --config-file --conf",
        "use '--config FILE'",
    ),
    (
        "serve proxy",
        "--daemon --detach --background",
        "run it under a service manager, such as systemd",
    ),
    (
        "proxy",
        "--target --backend --origin --to --url --server",
        "use '--upstream URL'",
    ),
    (
        "proxy",
        "--ttl --max-age",
        "use '--default-ttl TIME' for responses that state no lifetime",
    ),
    ("proxy", "--cache-size --memory", "use '--cache SIZE'"),
    (
        "proxy",
        "--timeout",
        "use '--answer-timeout TIME' or '--connect-timeout TIME'",
    ),
    (
        "proxy",
        "--insecure -k",
        "trust the upstream's authority: '--upstream-ca FILE'",
    ),
    // Clients of a gateway.
    (
        "lease.list",
        "--prefix --container --path",
        "write it without a flag: 'ifmatch lease list PREFIX'",
    ),
    (
        "lease.show lease.break",
        "--path --blob --container",
        "write it without a flag: CONTAINER or CONTAINER/BLOB",
    ),
    (
        "lease.break",
        "--now --force -f",
        "to break the lease now, use '--period 0'",
    ),
    ("lease", "ls", "use 'ifmatch lease list'"),
    ("lease", "get", "use 'ifmatch lease show PATH'"),
    (
        "lease",
        "rm remove delete release unlock",
        "use 'ifmatch lease break PATH'",
    ),
    (
        "lease",
        "acquire create take renew",
        "clients acquire leases: POST /CONTAINER/BLOB?lease, or 'ifmatch lock URL -- COMMAND'",
    ),
    (
        "lease lease.list lease.show lease.break backup health",
        "--server --host --gateway --address --endpoint --port -p",
        "use '--url http://127.0.0.1:10000'",
    ),
    (
        "lease.list lease.show lease.break backup health lock elect check",
        "--cacert --cafile --ca-file --certificate --insecure -k",
        "trust the server's authority: '--ca FILE'",
    ),
    (
        "lock",
        "WORD",
        "put '--' before the command: 'ifmatch lock URL -- COMMAND'",
    ),
    (
        "elect",
        "WORD",
        "put '--' before the command: 'ifmatch elect URL -- COMMAND'",
    ),
    (
        "lock elect check",
        "--url",
        "write the URL without a flag, as an argument",
    ),
    ("lock", "--timeout -w", "use '--wait TIME'"),
    (
        "lock",
        "-n --nonblock --nowait --no-wait",
        "use '--wait 0s'",
    ),
    (
        "lock elect",
        "--expire --expires --lease --lease-time --duration",
        "use '--ttl TIME'",
    ),
    ("check", "--all --full", "use '--suite'"),
    ("health", "URL", "name the gateway by a flag: '--url URL'"),
    // Folders and registers.
    (
        "verify gc",
        "WORD",
        "name the folder by a flag: '--data DIR'",
    ),
    (
        "verify gc backup",
        "--dir --folder --path",
        "use '--data DIR'",
    ),
    (
        "verify",
        "--url URL",
        "to compare a running gateway with a copy, use 'rclone check'",
    ),
    (
        "verify",
        "--repair --fix",
        "restore damaged blobs from a backup; 'ifmatch gc' removes orphaned files",
    ),
    (
        "gc",
        "--force -f",
        "remove it: `gc` asks for no confirmation. To look first, use '--dry-run'",
    ),
    (
        "backup",
        "WORD",
        "name the folders by flags: '--data DIR --to DIR'",
    ),
    ("backup", "--from --source", "use '--data DIR'"),
    (
        "backup",
        "--dest --destination --target --output -o",
        "use '--to DIR'",
    ),
    (
        "backup",
        "--restore",
        "a backup is a data folder: serve it with 'ifmatch serve --data DIR'",
    ),
    (
        "register.migrate register.status register.restored",
        "--url --database WORD STORE URL",
        "use '--register URL'",
    ),
    (
        "register.copy",
        "--register --source --target",
        "use '--from URL --to URL'",
    ),
    (
        "register",
        "init create",
        "use 'ifmatch register migrate --register URL'",
    ),
    (
        "register",
        "show get check",
        "use 'ifmatch register status --register URL'",
    ),
    (
        "register",
        "restore",
        "restore the database first, then run 'ifmatch register restored --register URL'",
    ),
    // The program.
    (
        "-",
        "--data",
        "name the command: 'ifmatch serve --data DIR'",
    ),
    (
        "-",
        "--store",
        "name the command: 'ifmatch serve --store URL'",
    ),
    (
        "-",
        "--upstream",
        "name the command: 'ifmatch proxy --upstream URL'",
    ),
    (
        "-",
        "start run up daemon web",
        "to serve a folder, use 'ifmatch serve --data DIR'",
    ),
    (
        "-",
        "cache reverse-proxy forward",
        "to cache a server's responses, use 'ifmatch proxy --upstream URL'",
    ),
    (
        "-",
        "purge flush invalidate",
        "purge over HTTP: curl -X DELETE 'http://127.0.0.1:10000/-/cache?prefix=URL'",
    ),
    (
        "-",
        "get cat",
        "use curl http://127.0.0.1:10000/CONTAINER/NAME",
    ),
    (
        "-",
        "put",
        "use curl -T FILE http://127.0.0.1:10000/CONTAINER/NAME",
    ),
    ("-", "ls", "use curl http://127.0.0.1:10000/CONTAINER"),
    (
        "-",
        "rm delete",
        "use curl -X DELETE http://127.0.0.1:10000/CONTAINER/NAME",
    ),
    (
        "-",
        "import export cp sync upload download push pull mirror",
        "use rclone, azcopy or s5cmd",
    ),
    ("-", "status ping ready", "use 'ifmatch health --ready'"),
    (
        "-",
        "unlock release",
        "a lock is released when its command ends. To break a lease, use 'ifmatch lease break PATH'",
    ),
    (
        "-",
        "leader leader-election",
        "use 'ifmatch elect URL -- COMMAND'",
    ),
    ("-", "flock", "use 'ifmatch lock URL -- COMMAND'"),
    (
        "-",
        "migrate",
        "use 'ifmatch register migrate --register URL'",
    ),
    (
        "-",
        "snapshot dump",
        "use 'ifmatch backup --data DIR --to DIR'",
    ),
    ("-", "fsck scrub doctor", "use 'ifmatch verify --data DIR'"),
    ("-", "leases", "use 'ifmatch lease list'"),
    ("-", "test conformance probe", "use 'ifmatch check URL'"),
    ("-", "version -v", "use 'ifmatch --version'"),
];

/// Adds the tip for what was tried to the error of a command line, in place of clap's own.
pub(super) fn add(mut error: Error, program: &Command, args: &[OsString]) -> Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(tried)) = error.get(kind) else {
        return error;
    };
    let words: Vec<String> = args
        .iter()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let path = path(program, &words);
    let tip = apart_from_its_flag(program, &path, tried, &words)
        .or_else(|| find(&path, tried).map(str::to_owned));
    if let Some(tip) = tip {
        for own in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
            error.remove(own);
        }
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// Smallest similarity of two names for a suggestion: among five letters, one is wrong or two are swapped.
const SIMILAR: f64 = 0.8;
/// Prefix of the settings' variables.
const VARIABLES: &str = "IFMATCH_";

/// Returns a warning for each variable that isn't a setting, but seems to be meant as one. Others are for other programs.
pub(super) fn for_variables(
    program: &Command,
    set: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let known = variables(program);
    let nearest = |name: &str| {
        let rest = name.strip_prefix(VARIABLES)?;
        let similarity = |known: &str| {
            strsim::normalized_damerau_levenshtein(rest, known.trim_start_matches(VARIABLES))
        };
        let nearest = known
            .iter()
            .max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
        (similarity(nearest) >= SIMILAR).then_some(nearest)
    };
    let mut names: Vec<String> = set
        .into_iter()
        .filter(|name| !known.contains(name))
        .collect();
    names.sort();
    let warning = |name: &String| {
        Some(format!(
            "{name} isn't a setting. Did you mean {}?",
            nearest(name)?
        ))
    };
    names.iter().filter_map(warning).collect()
}

/// Returns the variables of a command and of those below it.
fn variables(command: &Command) -> Vec<String> {
    let own = command
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(variables))
        .collect()
}

/// Returns the tip for a flag or a value of a command: one for this word, or else one for its kind.
fn find(command: &str, tried: &str) -> Option<&'static str> {
    let has = |list: &str, word: &str| list.split(' ').any(|listed| listed == word);
    let of = |word: &str| {
        TIPS.iter()
            .find(|(commands, words, _)| has(commands, command) && has(words, word))
    };
    of(tried)
        .or_else(|| of(kind(tried)))
        .map(|(_, _, tip)| *tip)
}

/// Returns the tip for the value of a flag that takes it after an equals sign only, since it may have none.
fn apart_from_its_flag(
    program: &Command,
    path: &str,
    tried: &str,
    words: &[String],
) -> Option<String> {
    let at = words.iter().position(|word| word == tried)?;
    let flag = words.get(at.checked_sub(1)?)?.strip_prefix("--")?;
    let command = path
        .split('.')
        .try_fold(program, |command, name| command.find_subcommand(name))?;
    let is_apart = command
        .get_arguments()
        .any(|arg| arg.get_long() == Some(flag) && arg.is_require_equals_set());
    is_apart.then(|| format!("write it with an equals sign: '--{flag}={tried}'"))
}

/// Returns the path of the command that the words name, such as `lease.list`, or `-`.
fn path(program: &Command, words: &[String]) -> String {
    let (mut command, mut path) = (program, Vec::new());
    for word in words {
        let Some(child) = command.find_subcommand(word) else {
            break;
        };
        path.push(child.get_name());
        command = child;
    }
    if path.is_empty() {
        "-".to_owned()
    } else {
        path.join(".")
    }
}

/// Returns the kind of a value, or an empty string for a flag.
fn kind(tried: &str) -> &'static str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match tried.split_once("://") {
        _ if tried.starts_with('-') => "",
        Some(("http" | "https" | "h2c", _)) => "URL",
        Some(_) => "STORE",
        None if is_number(tried.rsplit(':').next().unwrap_or_default()) => "NUMBER",
        None => "WORD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tip_is_for_a_command_that_lacks_what_was_tried() {
        let program = super::super::command();
        for (commands, names, tip) in TIPS {
            for name in commands.split(' ').filter(|name| *name != "-") {
                let command = name
                    .split('.')
                    .try_fold(&program, |command, name| command.find_subcommand(name));
                let command = command.unwrap_or_else(|| panic!("{name}: {tip}"));
                let has_flag = |tried: &str| {
                    command.get_arguments().any(|arg| {
                        let long = arg.get_long().map(|long| format!("--{long}"));
                        let short = arg.get_short().map(|short| format!("-{short}"));
                        long.as_deref() == Some(tried) || short.as_deref() == Some(tried)
                    })
                };
                let known: Vec<&str> = names
                    .split(' ')
                    .filter(|tried| has_flag(tried) || command.find_subcommand(tried).is_some())
                    .collect();
                assert!(known.is_empty(), "{name} has {known:?}");
            }
        }
    }

    #[test]
    fn a_value_apart_from_its_flag_gets_the_form_that_works() {
        let program = super::super::command();
        for (line, tried, expected) in [
            (
                "serve --data d --access-log a.log",
                "a.log",
                Some("'--access-log=a.log'"),
            ),
            (
                "proxy --access-log a.log --upstream http://a",
                "a.log",
                Some("'--access-log=a.log'"),
            ),
            (
                "serve --public-read true",
                "true",
                Some("'--public-read=true'"),
            ),
            ("serve --data d a.log", "a.log", None),
            ("serve a.log", "a.log", None),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let tip = apart_from_its_flag(&program, &path(&program, &words), tried, &words);
            assert!(
                tip.as_deref()
                    .is_some_and(|tip| expected.is_some_and(|form| tip.contains(form)))
                    || tip.is_none() && expected.is_none(),
                "{line}: {tip:?}"
            );
        }
    }

    #[test]
    fn a_misspelt_variable_gets_a_warning() {
        let set = [
            "IFMATCH_MAX_BODYSIZE",
            "IFMATCH_MAX_BODY_SIZE",
            "IFMATCH_UPSTREAMS",
            "IFMATCH_FENCE",
            "IFMATCH_LEASE_ID",
            "IFMATCH_BIN",
            "MAX_BODYSIZE",
        ];
        let warnings = for_variables(&super::super::command(), set.map(str::to_owned));
        let expected = [
            "IFMATCH_MAX_BODYSIZE isn't a setting. Did you mean IFMATCH_MAX_BODY_SIZE?",
            "IFMATCH_UPSTREAMS isn't a setting. Did you mean IFMATCH_UPSTREAM?",
        ];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn a_word_has_its_own_tip_or_its_kinds() {
        for (command, tried, expected) in [
            ("serve", "--port", Some("--listen PORT")),
            ("serve", "./site", Some("--data DIR")),
            ("serve", "s3://b", Some("--store URL")),
            ("serve", "127.0.0.1:80", Some("--listen PORT")),
            ("proxy", "site", None),
            ("serve", "--dta", None),
        ] {
            let tip = find(command, tried);
            assert!(tip.is_some() == expected.is_some(), "{tried}: {tip:?}");
            assert!(
                tip.is_none_or(|tip| expected.is_some_and(|part| tip.contains(part))),
                "{tried}: {tip:?}"
            );
        }
        let words = ["lease", "list", "--x"].map(str::to_owned);
        assert_eq!(path(&super::super::command(), &words), "lease.list");
    }
}
