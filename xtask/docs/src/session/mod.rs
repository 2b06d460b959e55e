//! Sessions of the documentation: commands that a page shows with their output, run with the real program.

mod page;
mod shell;
mod transcript;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use support::Gateway;
use xtask::{Result, listening};

use page::{Page, Step};
use shell::Shell;
use transcript::Transcript;

/// Address of a gateway without `--listen`.
const DEFAULT_ADDRESS: &str = "127.0.0.1:10000";
/// A command line of a gateway that a page needn't show.
const DEFAULT_SERVER: &str = "ifmatch serve --data ./data";

/// Runs the commands of pages in a folder of its own, with gateways on free ports.
struct Session {
    folder: tempfile::TempDir,
    shell: Shell,
    gateways: Vec<Gateway>,
    /// Texts of the page, and what they are here: addresses and paths.
    places: Vec<(String, String)>,
    settings: BTreeMap<String, String>,
}

impl Session {
    /// Starts a session. `places` are addresses and paths of the page, each with its replacement.
    fn start(places: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Without the meter that curl shows only if its output isn't a terminal.
        fs::write(folder.path().join(".curlrc"), "silent\nshow-error\n")?;
        let shell = Shell::start(folder.path(), Path::new(Gateway::command().get_program()))?;
        let places = places
            .iter()
            .map(|&(shown, here)| (shown.to_owned(), here.to_owned()))
            .collect();
        Ok(Self {
            folder,
            shell,
            gateways: Vec::new(),
            places,
            settings: BTreeMap::new(),
        })
    }

    /// Runs all commands, and compares their output with the page.
    ///
    /// # Errors
    /// Names the command whose output differs.
    fn run(&mut self, page: &Page) -> Result {
        let mut transcript = Transcript::default();
        for step in page.steps() {
            match step {
                Step::Serve(line) => self.serve(line)?,
                Step::Run { command, expected } => {
                    if self.gateways.is_empty() && self.places.is_empty() {
                        self.serve(DEFAULT_SERVER)?;
                    }
                    let command = transcript.with_actual_values(command);
                    let output = self.output(&command)?;
                    transcript.compare(expected, &output).map_err(|line| {
                        format!(
                            "`{command}` does not print `{line}`, but\n{}",
                            output.join("\n")
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Starts a gateway with this command line.
    fn serve(&mut self, line: &str) -> Result {
        let words: Vec<String> = line
            .split_whitespace()
            .skip(1)
            .map(|word| self.here(word))
            .collect();
        let listen = words.iter().position(|word| word == "--listen");
        let shown = listen
            .and_then(|at| words.get(at + 1))
            .map_or(DEFAULT_ADDRESS, String::as_str)
            .to_owned();
        let rest = words
            .iter()
            .enumerate()
            .filter(|&(at, _)| listen.is_none_or(|flag| at != flag && at != flag + 1));
        let mut command = Gateway::command();
        command
            .args(rest.map(|(_, word)| word))
            .args(["--listen", "127.0.0.1:0"]);
        command.envs(&self.settings).current_dir(self.folder.path());
        let gateway = Gateway::launch(command);
        let address = gateway.address().to_string();
        if shown == DEFAULT_ADDRESS {
            // For commands that name no gateway.
            self.shell
                .run(&format!("export IFMATCH_URL=http://{address}"))?;
        }
        self.places.push((shown, address));
        self.gateways.push(gateway);
        Ok(())
    }

    /// Stops all gateways.
    fn stop(&mut self) {
        self.gateways.clear();
        self.places.retain(|(shown, _)| shown != DEFAULT_ADDRESS);
    }

    /// Runs a command, and returns its output with the addresses of the page.
    fn output(&mut self, command: &str) -> Result<Vec<String>> {
        let command = self.here(command);
        if let Some((name, value)) = command
            .strip_prefix("export ")
            .and_then(|setting| setting.split_once('='))
        {
            self.settings.insert(name.to_owned(), value.to_owned());
        }
        let output = self.shell.run(&command)?;
        if command.ends_with(" &") {
            self.wait(&command)?;
        }
        Ok(output
            .lines()
            .map(|line| self.shown(line.trim_end()))
            .collect())
    }

    /// Waits until the ports that a command in the background names are open.
    fn wait(&mut self, command: &str) -> Result {
        let named = self
            .places
            .iter()
            .filter_map(|(_, here)| here.parse().ok())
            .filter(|port: &u16| {
                command
                    .split_whitespace()
                    .any(|word| word == port.to_string())
            });
        for port in named {
            listening::wait(command, ([127, 0, 0, 1], port).into(), || {
                // Prints why not, if it can't.
                match self.shell.run("kill -0 $!")? {
                    silent if silent.is_empty() => Ok(()),
                    error => Err(error.into()),
                }
            })?;
        }
        Ok(())
    }

    /// Replaces places of the page with this session's.
    fn here(&self, text: &str) -> String {
        self.places
            .iter()
            .fold(text.to_owned(), |text, (shown, here)| {
                text.replace(shown, here)
            })
    }

    /// Replaces places of this session with the page's.
    fn shown(&self, text: &str) -> String {
        self.places
            .iter()
            .fold(text.to_owned(), |text, (shown, here)| {
                text.replace(here, shown)
            })
    }
}

mod tests;
