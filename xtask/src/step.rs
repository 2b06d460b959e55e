//! Named steps, each with a time limit: runs them in order, stops at the first failure, and ends with a table of times.

use std::time::{Duration, Instant};

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// One thing that must hold.
pub(crate) struct Step {
    /// What `--only` takes.
    pub(crate) name: &'static str,
    /// What must hold.
    pub(crate) about: &'static str,
    /// After this the step has failed. A first run on two cores compiles everything, so the limits are wide.
    pub(crate) minutes: u64,
    /// External programs that must be there before anything starts.
    pub(crate) needs: &'static [Tool],
    /// The check itself.
    pub(crate) run: fn(&Context<'_>) -> Result,
}

/// An external program.
pub(crate) struct Tool {
    /// A command that succeeds if the program is there.
    pub(crate) probe: &'static [&'static str],
    /// The command that installs it.
    pub(crate) install: &'static str,
}

/// What a running step is given.
pub(crate) struct Context<'a> {
    /// The workspace under test.
    pub(crate) workspace: &'a Workspace,
    /// When the step's time is over.
    pub(crate) deadline: Instant,
}

/// Runs the steps in order. The error names the step that failed and how to run it alone.
pub(crate) fn run_all(steps: &[&Step], workspace: &Workspace) -> Result {
    for tool in steps.iter().flat_map(|step| step.needs) {
        tool.require(workspace)?;
    }
    let mut times = Vec::new();
    let failure = steps.iter().find_map(|step| {
        println!("\n== {}: {}", step.name, step.about);
        let start = Instant::now();
        let context = Context { workspace, deadline: start + Duration::from_mins(step.minutes) };
        let done = (step.run)(&context);
        times.push((step.name, start.elapsed(), done.is_ok()));
        done.err().map(|error| format!("{}: {error}\nto run it alone: cargo xtask test --only {0}", step.name))
    });
    summarise(&times, steps.len());
    failure.map_or(Ok(()), |error| Err(error.into()))
}

impl Tool {
    /// Installs it if it is not there and can be installed without asking: a Debian package, by root. Otherwise an error that
    /// names the command which installs it.
    pub(crate) fn require(&self, workspace: &Workspace) -> Result {
        if self.is_there(workspace) || (self.install(workspace) && self.is_there(workspace)) {
            return Ok(());
        }
        Err(format!("`{}` does not run. Install it with: {}", self.probe.join(" "), self.install).into())
    }

    fn is_there(&self, workspace: &Workspace) -> bool {
        let Some((program, args)) = self.probe.split_first() else { return true };
        Run::new(program, workspace.root()).args(args).output().is_ok()
    }

    /// Tries to install it, and says whether that could be done.
    fn install(&self, workspace: &Workspace) -> bool {
        let Some(packages) = self.install.strip_prefix("apt-get install ") else { return false };
        let run =
            |program: &str, args: &str| Run::new(program, workspace.root()).args(args.split_whitespace()).output();
        if run("id", "-u").is_ok_and(|id| id.trim() != "0") || run("apt-get", "--version").is_err() {
            return false;
        }
        println!("installing {packages}");
        let quiet = "install -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0";
        run("apt-get", "update -qq").and_then(|_| run("apt-get", &format!("{quiet} {packages}"))).is_ok()
    }
}

fn summarise(times: &[(&str, Duration, bool)], planned: usize) {
    println!("\n== summary");
    for (name, time, passed) in times {
        let result = if *passed { "ok" } else { "FAILED" };
        println!("{name:<18} {:>7.1} s  {result}", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time, _)| *time).sum();
    println!("{:<18} {:>7.1} s  {} of {planned} steps run", "total", total.as_secs_f64(), times.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: Step = Step { name: "passes", about: "", minutes: 1, needs: &[], run: |_| Ok(()) };
    const FAILS: Step = Step { name: "fails", about: "", minutes: 1, needs: &[], run: |_| Err("broken".into()) };
    const LACKS: Step = Step {
        name: "lacks",
        about: "",
        minutes: 1,
        needs: &[Tool { probe: &["no-such-program-here"], install: "get program" }],
        run: |_| Ok(()),
    };

    fn run(steps: &[&Step]) -> std::result::Result<(), String> {
        run_all(steps, &Workspace::load().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_must_pass() {
        assert_eq!(run(&[&PASSES, &PASSES]), Ok(()));
    }

    #[test]
    fn a_failure_is_reported_with_the_way_to_repeat_it() {
        let error = run(&[&PASSES, &FAILS, &PASSES]).unwrap_err();
        assert!(error.contains("fails: broken") && error.contains("--only fails"), "{error}");
    }

    #[test]
    fn a_missing_tool_stops_everything_and_says_how_to_install_it() {
        let error = run(&[&FAILS, &LACKS]).unwrap_err();
        assert_eq!(error, "`no-such-program-here` does not run. Install it with: get program");
    }
}
