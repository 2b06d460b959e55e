//! Pages from the definition of the command line: completions for shells, manual pages, and the reference of settings and metrics.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use clap::builder::Command;
use clap::{Arg, Args, ValueEnum};
use clap_complete::Shell;
use ifmatch_gateway_commands::terminal::print_text;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_service::metrics::catalogue;

/// `ifmatch reference …`
#[derive(Args)]
pub(super) struct ReferenceArgs {
    /// The page.
    #[arg(value_enum)]
    page: ReferencePage,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReferencePage {
    Settings,
    Metrics,
}

/// Prints a page.
///
/// # Errors
/// Fails if stdout is closed, or if the metrics can't be listed.
pub(super) fn print(args: &ReferenceArgs, command: &Command) -> Result<(), Error> {
    print_text(&match args.page {
        ReferencePage::Settings => settings(command),
        ReferencePage::Metrics => metrics()?,
    })
}

const SETTINGS: &str = "\
# Settings

<!-- Generated from the program: cargo xtask docs --reference -->

A setting of `ifmatch serve` and `ifmatch proxy` is a flag, a variable, or a key in the file of `--config`. The key is the flag without
`--`; the proxy's own keys are in the table `[proxy]`. Flags override variables, and variables override the file.

<div class=\"settings\">
";

/// The flags of commands that ask a server.
const OF_CLIENTS: [&str; 4] = ["url", "token", "token_file", "ca"];

fn settings(command: &Command) -> String {
    let mut page = SETTINGS.to_owned();
    let servers: Vec<&Command> = ["serve", "proxy"]
        .iter()
        .filter_map(|name| command.find_subcommand(name))
        .collect();
    let shared = shared(&servers);
    if !shared.is_empty() {
        let _ = write!(page, "\n## {0} serve and {0} proxy\n", command.get_name());
        tables(
            &mut page,
            "",
            &servers[0]
                .get_arguments()
                .filter(|arg| shared.contains(&row(arg)))
                .collect::<Vec<_>>(),
        );
    }
    for server in &servers {
        let _ = write!(
            page,
            "\n## {} {}\n\n{}\n",
            command.get_name(),
            server.get_name(),
            sentence(server.get_about())
        );
        let own = server
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && !shared.contains(&row(arg)));
        tables(&mut page, server.get_name(), &own.collect::<Vec<_>>());
    }
    let others = command
        .get_subcommands()
        .filter(|child| !servers.iter().any(|one| one.get_name() == child.get_name()));
    let others: Vec<&Command> = others.collect();
    if let Some(client) = others.iter().find_map(|child| client(child)) {
        page.push_str("\n## Commands that contact a server\n\nThey share these flags.\n");
        tables(
            &mut page,
            "",
            &client
                .get_arguments()
                .filter(|arg| is_of_clients(arg))
                .collect::<Vec<_>>(),
        );
    }
    for child in others {
        section(
            &mut page,
            &format!("{} {}", command.get_name(), child.get_name()),
            child,
        );
    }
    page.push_str("\n</div>\n");
    page
}

/// Returns the rows that all these commands have.
fn shared(commands: &[&Command]) -> Vec<String> {
    let [first, others @ ..] = commands else {
        return Vec::new();
    };
    let rows = |command: &Command| {
        command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .map(row)
            .collect::<Vec<_>>()
    };
    let others: Vec<Vec<String>> = others.iter().map(|other| rows(other)).collect();
    rows(first)
        .into_iter()
        .filter(|row| !others.is_empty() && others.iter().all(|rows| rows.contains(row)))
        .collect()
}

/// Returns the first command that has all flags of clients.
fn client(command: &Command) -> Option<&Command> {
    let has_all = OF_CLIENTS.iter().all(|id| {
        command
            .get_arguments()
            .any(|arg| arg.get_id() == *id && is_of_clients(arg))
    });
    if has_all {
        Some(command)
    } else {
        command.get_subcommands().find_map(client)
    }
}

/// Returns `true` for a flag that all clients have with one meaning. The URL of some is an argument.
fn is_of_clients(arg: &Arg) -> bool {
    let is_usual = arg.get_id() != "url" || arg.get_env().is_some();
    OF_CLIENTS.contains(&arg.get_id().as_str()) && is_usual
}

/// Adds the sections of all commands below this one, or the command's own.
fn section(page: &mut String, name: &str, command: &Command) {
    let children: Vec<&Command> = command
        .get_subcommands()
        .filter(|child| !child.is_hide_set())
        .collect();
    if children.is_empty() && !command.is_hide_set() {
        let _ = write!(
            page,
            "\n## {name}\n\n{}\n",
            sentence(command.get_long_about().or(command.get_about()))
        );
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let (of_clients, own): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| is_of_clients(arg));
        tables(page, "", &own);
        if !of_clients.is_empty() {
            let flags: Vec<String> = of_clients.iter().map(|arg| code(&usage(arg))).collect();
            let _ = write!(page, "\nAlso {}.\n", flags.join(", "));
        }
    }
    for child in children {
        section(page, &format!("{name} {}", child.get_name()), child);
    }
}

/// Adds a table for each group of arguments.
fn tables(page: &mut String, command: &str, shown: &[&Arg]) {
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in shown {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let _ = match command {
                "" => write!(page, "\n### {heading}\n"),
                command => write!(page, "\n### {command}: {}\n", heading.to_lowercase()),
            };
        }
        let rows: Vec<&&Arg> = shown
            .iter()
            .filter(|arg| arg.get_help_heading() == heading)
            .collect();
        let has_variables = rows.iter().any(|arg| variable(arg).is_some());
        page.push_str(if has_variables {
            "\n| flag | variable | meaning |\n|---|---|---|\n"
        } else {
            "\n| flag | meaning |\n|---|---|\n"
        });
        for arg in rows {
            let row = row(arg);
            page.push_str(&if has_variables {
                row
            } else {
                row.replacen("| |", "|", 1)
            });
        }
    }
}

/// Returns the row of an argument, with a cell for its variable.
fn row(arg: &Arg) -> String {
    let help = sentence(arg.get_long_help().or_else(|| arg.get_help()));
    // The variables and the defaults of settings are part of their help.
    let (help, shown) = without(&help, "default");
    let (help, _) = without(&help, "env");
    let stop = if help.ends_with(['.', '?']) { "" } else { "." };
    let own = arg
        .get_default_values()
        .first()
        .map(|value| value.to_string_lossy().into_owned());
    let default = own.or(shown).filter(|default| !default.is_empty());
    let default = default
        .map(|default| format!(" Default: {}.", code(&default)))
        .unwrap_or_default();
    let values = if arg.get_action().takes_values() {
        arg.get_possible_values()
    } else {
        Vec::new()
    };
    let is_new = values.iter().any(|value| !help.contains(value.get_name()));
    let names: Vec<String> = values.iter().map(|value| code(value.get_name())).collect();
    let choice = if !is_new || is_boolean(&names) {
        String::new()
    } else {
        format!(" One of {}.", names.join(", "))
    };
    let variable = variable(arg)
        .map(|name| format!("{} ", code(&name)))
        .unwrap_or_default();
    format!(
        "| {} | {variable}| {}{stop}{choice}{default} |\n",
        code(&usage(arg)),
        cell(&help)
    )
}

/// Returns the variable of an argument, which may be in its help.
fn variable(arg: &Arg) -> Option<String> {
    let named = || without(&arg.get_help()?.to_string(), "env").1;
    arg.get_env()
        .map(|name| name.to_string_lossy().into_owned())
        .or_else(named)
}

/// Returns a help without `[name: value]`, and the value.
fn without(help: &str, name: &str) -> (String, Option<String>) {
    let found = help
        .split_once(&format!(" [{name}: "))
        .and_then(|(before, rest)| {
            let (value, after) = rest.split_once(']')?;
            Some((format!("{before}{after}"), Some(value.to_owned())))
        });
    found.unwrap_or_else(|| (help.to_owned(), None))
}

fn is_boolean(names: &[String]) -> bool {
    names
        .iter()
        .all(|name| ["`true`", "`false`"].contains(&name.as_str()))
}

/// Returns the argument as a user writes it: `--flag VALUE`, or `VALUE`.
fn usage(arg: &Arg) -> String {
    let flag = arg
        .get_long()
        .map(|name| format!("--{name}"))
        .unwrap_or_default();
    let names = arg.get_value_names().unwrap_or_default();
    let takes = arg.get_action().takes_values();
    let value = names
        .first()
        .map_or_else(|| arg.get_id().as_str().to_uppercase(), ToString::to_string);
    match (flag.is_empty(), takes && value != "BOOL") {
        (true, _) => value,
        (false, true) => format!("{flag} {value}"),
        (false, false) => flag,
    }
}

fn metrics() -> Result<String, Error> {
    let mut page = METRICS.to_owned();
    for (name, metric) in catalogue::all()? {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|(label, values)| {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                if values.is_empty() {
                    code(label)
                } else {
                    format!("{}: {}", code(label), values.join(", "))
                }
            })
            .collect();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            code(&name),
            metric.kind,
            labels.join("; "),
            cell(&metric.help)
        );
    }
    Ok(page)
}

const METRICS: &str = "\
# Metrics

<!-- Generated from the program: cargo xtask docs --reference -->

`GET /-/metrics` returns these metrics in Prometheus' text format; it needs a token for reading if there are tokens.
[Operations](../operations.md) says which to alert on. The metrics of the cache and the upstreams exist only if there are
any, and those of the register only with `--store` or a bucket in `--data`. All labels have a fixed set of values, which is
listed, or values from the configuration.

| metric | type | labels | meaning |
|---|---|---|---|
";

fn sentence(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() || text.ends_with(['.', ']']) {
        text
    } else {
        format!("{text}.")
    }
}

fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}

/// Escapes characters that end a cell and, outside code, those that begin markup.
fn cell(text: &str) -> String {
    let escape = |(at, part): (usize, &str)| match at % 2 {
        0 => with_flags(
            &part
                .replace('<', "&lt;")
                .replace('*', "\\*")
                .replace('_', "\\_"),
        ),
        _ => format!("`{part}`"),
    };
    text.replace('|', "\\|")
        .split('`')
        .enumerate()
        .map(escape)
        .collect()
}

/// Marks flags as code.
fn with_flags(text: &str) -> String {
    let is_of_flag = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let word = |word: &str| match word.find("--") {
        Some(start) if word[start + 2..].starts_with(|first: char| first.is_ascii_alphabetic()) => {
            let end = word[start..]
                .find(|next| !is_of_flag(next))
                .map_or(word.len(), |length| start + length);
            format!("{}`{}`{}", &word[..start], &word[start..end], &word[end..])
        }
        _ => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// `ifmatch completions …`
#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// `ifmatch man …`
#[derive(Args)]
pub(super) struct ManArgs {
    /// Folder for the pages, created if missing.
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
pub(super) fn print_completions(
    args: &CompletionsArgs,
    command: &mut clap::Command,
) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "ifmatch", &mut text);
    print_text(&String::from_utf8_lossy(&text))
}

/// Writes a page for each command.
///
/// # Errors
/// Fails if the folder can't be written.
pub(super) fn write_manual(args: &ManArgs, command: clap::Command) -> Result<(), Error> {
    let written = fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder).map(drop));
    written.map_err(|error| {
        Error::runtime(format!(
            "can't write the pages to {}. Choose another folder ({error}).",
            args.folder.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_its_variable_and_default() {
        let count = Arg::new("count")
            .long("max-count")
            .value_name("N")
            .env("IFMATCH_MAX_COUNT")
            .help("Number | of [default: 7]");
        let kind = Arg::new("kind")
            .value_parser(["a", "b"])
            .default_value("b")
            .help("Kind");
        let child = Command::new("child").about("Do it").args([count, kind]);
        let page = settings(
            &Command::new("parent").subcommands([child, Command::new("internal").hide(true)]),
        );
        assert!(page.contains("\n## parent child\n\nDo it.\n"), "{page}");
        assert!(
            page.contains(
                "| `--max-count N` | `IFMATCH_MAX_COUNT` | Number \\| of. Default: `7`. |"
            ),
            "{page}"
        );
        assert!(
            page.contains("| `KIND` | | Kind. One of `a`, `b`. Default: `b`. |"),
            "{page}"
        );
        assert!(!page.contains("internal"), "{page}");
    }

    #[test]
    fn code_is_not_escaped() {
        assert_eq!(cell("a_b `c_*<|` <d>"), r"a\_b `c_*<\|` &lt;d>");
        assert_eq!(
            cell("With --data, or (--s3-host) -- `--x`."),
            "With `--data`, or (`--s3-host`) -- `--x`."
        );
    }
}
