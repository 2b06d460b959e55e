//! Tips for flags and words that people try.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What people try, by command, and what to use. Commands, and what they get, are separated by spaces; `-` is the program itself, and
/// `lease.list` a command below another. Words in capitals stand for a kind of value: an http `URL`, a `STORE`, a `NUMBER`, which may be
/// an address, or any other `WORD`. `{default}` is the value that was given, or this default.
const TIPS: &[(&str, &str, &str)] = &[
    // Servers.
    ("serve", "WORD", "to serve a folder, use '--data {./data}'"),
    ("serve", "STORE", "to serve an object store, use '--store {s3://bucket}'"),
    ("serve", "URL", "to forward requests to a server, use 'ifmatch proxy --upstream {http://127.0.0.1:8000}'"),
    ("proxy", "URL NUMBER WORD", "name the upstream by a flag: '--upstream {http://127.0.0.1:8000}'"),
    ("serve", "NUMBER", "to listen on another port, use '--listen {8080}'"),
    ("serve proxy", "--port -p", "use '--listen {8080}' for localhost, or '--listen 0.0.0.0:{8080}' for all addresses"),
    (
        "serve proxy",
        "--host --bind --addr --address --interface",
        "use '--listen IP:PORT', such as '--listen 0.0.0.0:8080'",
    ),
    ("serve", "--dir --folder --path --root --directory --storage -d", "use '--data {./data}'"),
    ("serve", "--bucket --s3", "use '--store s3://BUCKET/PREFIX'"),
    ("serve", "--db --database --postgres --redis", "use '--register URL', such as postgres://USER@HOST/DATABASE"),
    (
        "serve",
        "--upstream --target --backend --origin --url",
        "to forward requests, use 'ifmatch proxy --upstream {URL}'",
    ),
    (
        "serve proxy",
        "--token --auth --api-key --password",
        "use '--write-token-file FILE' and '--read-token-file FILE'",
    ),
    ("serve proxy", "--token-file", "use '--write-token-file {FILE}' or '--read-token-file {FILE}'"),
    ("serve proxy", "--cert --certificate --tls", "use '--tls-cert FILE --tls-key FILE'"),
    ("serve proxy", "--key", "use '--tls-key {FILE}'"),
    ("serve proxy", "-v --verbose --debug --log-level", "use '--log debug'"),
    ("serve proxy", "-q --quiet --silent", "use '--log error'"),
    ("serve proxy", "-c --config-file --conf", "use '--config {FILE}'"),
    ("serve proxy", "--daemon --detach --background", "run it under a service manager, such as systemd"),
    ("serve proxy", "--threads --workers", "remove it: there is a thread per core"),
    ("serve proxy", "--user --uid", "start it as that user: 'sudo -u USER ifmatch …'"),
    ("serve proxy", "--readonly --read-only", "give clients a read token only: '--read-token-file FILE'"),
    ("proxy", "--target --backend --origin --to --url --server", "use '--upstream {http://127.0.0.1:8000}'"),
    ("proxy", "--ttl --max-age", "use '--default-ttl {10m}' for responses that state no lifetime"),
    ("proxy", "--cache-size --memory", "use '--cache {256MiB}'"),
    ("proxy", "--timeout", "use '--answer-timeout {60s}' or '--connect-timeout {5s}'"),
    ("proxy", "--insecure -k", "trust the upstream's authority: '--upstream-ca FILE'"),
    // Clients of a gateway.
    ("lease.list", "--prefix --container --path", "write it without a flag: 'ifmatch lease list {docs}'"),
    ("lease.show lease.break", "--path --blob --container", "write it without a flag: CONTAINER or CONTAINER/BLOB"),
    ("lease.break", "--now --force -f", "to break the lease now, use '--period 0'"),
    ("lease.break", "--id --lease-id", "remove it: `lease break` needs no ID"),
    ("lease", "ls", "use 'ifmatch lease list'"),
    ("lease", "get", "use 'ifmatch lease show PATH'"),
    ("lease", "rm remove delete release unlock", "use 'ifmatch lease break PATH'"),
    (
        "lease",
        "acquire create take renew",
        "clients acquire leases: POST /CONTAINER/BLOB?lease, or 'ifmatch lock URL -- COMMAND'",
    ),
    (
        "lease lease.list lease.show lease.break backup health",
        "--server --host --gateway --address --endpoint",
        "use '--url {http://127.0.0.1:10000}'",
    ),
    ("lease.list lease.show lease.break backup health", "--port -p", "use '--url http://127.0.0.1:{10000}'"),
    (
        "lease.list lease.show lease.break backup health lock elect check",
        "--cacert --cafile --ca-file --certificate",
        "use '--ca {FILE}'",
    ),
    (
        "lease.list lease.show lease.break backup health lock elect check",
        "--insecure -k",
        "trust the server's authority: '--ca FILE'",
    ),
    ("lock", "WORD", "put '--' before the command: ifmatch lock URL -- {./backup.sh}"),
    ("elect", "WORD", "put '--' before the command: ifmatch elect URL -- {./mailer}"),
    ("lock elect check", "--url", "write the URL without a flag, as an argument"),
    ("lock", "--timeout -w", "use '--wait {30s}'"),
    ("lock", "-n --nonblock --nowait --no-wait", "use '--wait 0s'"),
    ("lock elect", "--expire --expires --lease --lease-time --duration", "use '--ttl {30s}'"),
    ("check", "--all --full", "use '--suite'"),
    ("verify gc", "WORD", "name the folder by a flag: '--data {./data}'"),
    ("backup", "WORD", "name the folders by flags: '--data DIR --to {DIR}'"),
    ("backup", "--from --source", "use '--data {DIR}'"),
    ("backup", "--dest --destination --target --output -o", "use '--to {DIR}'"),
    ("backup", "--restore", "a backup is a data folder: serve it with 'ifmatch serve --data {DIR}'"),
    ("verify gc backup", "--dir --folder --path", "use '--data {./data}'"),
    ("verify", "--repair --fix", "restore damaged blobs from a backup; 'ifmatch gc' removes orphaned files"),
    ("gc", "--force -f", "remove it: `gc` asks for no confirmation. To look first, use '--dry-run'"),
    ("health", "URL NUMBER WORD", "name the gateway by a flag: '--url {http://127.0.0.1:10000}'"),
    ("health", "--token --token-file", "remove it: `health` needs no token"),
    (
        "register.migrate register.status register.restored",
        "--url --database",
        "use '--register {postgres://USER@HOST/DATABASE}'",
    ),
    (
        "register.migrate register.status register.restored",
        "WORD STORE URL",
        "name the register by a flag: '--register {URL}'",
    ),
    ("register.copy", "--register --source --target", "use '--from URL --to URL'"),
    ("register", "init create", "use 'ifmatch register migrate --register URL'"),
    ("register", "show get check", "use 'ifmatch register status --register URL'"),
    ("register", "restore", "restore the database first, then run 'ifmatch register restored --register URL'"),
    // The program.
    ("-", "--data", "name the command: 'ifmatch serve --data {./data}'"),
    ("-", "--store", "name the command: 'ifmatch serve --store {s3://bucket}'"),
    ("-", "--upstream", "name the command: 'ifmatch proxy --upstream {http://127.0.0.1:8000}'"),
    ("-", "start run up daemon web", "to serve a folder, use 'ifmatch serve --data ./data'"),
    ("-", "cache reverse-proxy forward", "to cache a server's responses, use 'ifmatch proxy --upstream URL'"),
    ("-", "purge flush invalidate", "purge over HTTP: curl -X DELETE 'http://127.0.0.1:10000/-/cache?prefix=URL'"),
    ("-", "get put cat cp ls rm delete", "use curl: curl -T FILE http://127.0.0.1:10000/CONTAINER/NAME"),
    ("-", "status ping ready", "use 'ifmatch health --ready'"),
    (
        "-",
        "unlock release",
        "a lock is released when its command ends. To break a lease, use 'ifmatch lease break PATH'",
    ),
    ("-", "leader leader-election", "use 'ifmatch elect URL -- COMMAND'"),
    ("-", "flock", "use 'ifmatch lock URL -- COMMAND'"),
    ("-", "migrate", "use 'ifmatch register migrate --register URL'"),
    ("-", "restore", "a backup is a data folder: serve it with 'ifmatch serve --data DIR'"),
    ("-", "snapshot dump", "use 'ifmatch backup --data DIR --to DIR'"),
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
    let Some(ContextValue::String(tried)) = error.get(kind) else { return error };
    let tried = tried.clone();
    let has_own = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].map(|own| error.get(own).is_some());
    let words: Vec<String> = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let path = path(program, &words);
    let with_equals = apart_from_its_flag(program, &path, &tried, &words);
    let Some(tip) = with_equals.or_else(|| find(&path, &tried, &words)) else { return error };
    // A name that is only misspelt is meant, unless the table has it.
    if has_own.contains(&true) && tip.is_general {
        return error;
    }
    for own in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
        error.remove(own);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip.text)]));
    error
}

/// Smallest similarity of two names for a suggestion: one wrong or two swapped letters of eight.
const SIMILAR: f64 = 0.8;
/// Prefix of the settings' variables.
const VARIABLES: &str = "IFMATCH_";

/// Returns a warning for each variable that isn't a setting, but seems to be meant as one. Others are for other programs.
pub(super) fn for_variables(program: &Command, set: impl IntoIterator<Item = String>) -> Vec<String> {
    let known = variables(program);
    let nearest = |name: &str| {
        let rest = name.strip_prefix(VARIABLES)?;
        let similarity =
            |known: &str| strsim::normalized_damerau_levenshtein(rest, known.trim_start_matches(VARIABLES));
        let nearest = known.iter().max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
        (similarity(nearest) >= SIMILAR).then_some(nearest)
    };
    let mut names: Vec<String> = set.into_iter().filter(|name| !known.contains(name)).collect();
    names.sort();
    let warning = |name: &String| Some(format!("{name} isn't a setting. Did you mean {}?", nearest(name)?));
    names.iter().filter_map(warning).collect()
}

/// Returns the variables of a command and of those below it.
fn variables(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

struct Tip {
    text: String,
    /// `true` for any word, rather than for this one.
    is_general: bool,
}

fn find(command: &str, tried: &str, words: &[String]) -> Option<Tip> {
    let has = |list: &str, word: &str| list.split(' ').any(|listed| listed == word);
    let kind = kind(tried);
    let of_command = || TIPS.iter().filter(|(commands, ..)| has(commands, command));
    let exact = of_command().find(|(_, names, _)| has(names, tried));
    let (_, _, text) = exact.or_else(|| of_command().find(|(_, names, _)| has(names, kind)))?;
    Some(Tip { text: filled(text, value(tried, words).as_deref()), is_general: exact.is_none() })
}

/// Returns the tip for the value of a flag that takes it after an equals sign only, since it may have none.
fn apart_from_its_flag(program: &Command, path: &str, tried: &str, words: &[String]) -> Option<Tip> {
    let at = words.iter().position(|word| word == tried)?;
    let flag = words.get(at.checked_sub(1)?)?.strip_prefix("--")?;
    let command = path.split('.').try_fold(program, |command, name| command.find_subcommand(name))?;
    let is_apart = command.get_arguments().any(|arg| arg.get_long() == Some(flag) && arg.is_require_equals_set());
    is_apart.then(|| Tip { text: format!("write it with an equals sign: '--{flag}={tried}'"), is_general: false })
}

/// Returns the path of the command that the words name, such as `lease.list`, or `-`.
fn path(program: &Command, words: &[String]) -> String {
    let (mut command, mut path) = (program, Vec::new());
    for word in words {
        let Some(child) = command.find_subcommand(word) else { break };
        path.push(child.get_name());
        command = child;
    }
    if path.is_empty() { "-".to_owned() } else { path.join(".") }
}

/// Returns the kind of a value, or nothing for a flag.
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

/// Returns the value that was given to a flag, or a value without a flag.
fn value(tried: &str, words: &[String]) -> Option<String> {
    if !tried.starts_with('-') {
        return Some(tried.to_owned());
    }
    let mut rest = words.iter().skip_while(|word| *word != tried && !word.starts_with(&format!("{tried}=")));
    let flag = rest.next()?;
    match flag.split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => rest.next().filter(|next| !next.starts_with('-')).cloned(),
    }
}

/// Replaces each `{default}` by the value, or by the default itself.
fn filled(tip: &str, value: Option<&str>) -> String {
    let mut text = String::new();
    for (at, part) in tip.split(['{', '}']).enumerate() {
        text.push_str(if at % 2 == 1 { value.unwrap_or(part) } else { part });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tip_is_for_a_command_that_lacks_what_was_tried() {
        let program = super::super::command();
        for (commands, names, tip) in TIPS {
            for name in commands.split(' ').filter(|name| *name != "-") {
                let command = name.split('.').try_fold(&program, |command, name| command.find_subcommand(name));
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
            ("serve --data d --access-log a.log", "a.log", Some("'--access-log=a.log'")),
            ("proxy --access-log a.log --upstream http://a", "a.log", Some("'--access-log=a.log'")),
            ("serve --public-read true", "true", Some("'--public-read=true'")),
            ("serve --data d a.log", "a.log", None),
            ("serve a.log", "a.log", None),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let tip = apart_from_its_flag(&program, &path(&program, &words), tried, &words).map(|tip| tip.text);
            assert!(
                tip.as_deref().is_some_and(|tip| expected.is_some_and(|form| tip.contains(form)))
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
    fn a_tip_repeats_the_value() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, tried, expected) in [
            ("serve --port 9000", "--port", "--listen 9000"),
            ("serve --port=9000", "--port", "--listen 9000"),
            ("serve --port --check", "--port", "--listen 8080"),
            ("serve ./site", "./site", "--data ./site"),
            ("serve s3://b", "s3://b", "--store s3://b"),
        ] {
            let tip = find("serve", tried, &words(line)).unwrap().text;
            assert!(tip.contains(expected), "{line}: {tip}");
        }
        assert_eq!(path(&super::super::command(), &words("lease list --x")), "lease.list");
    }
}
