//! Named steps, each with a time limit: runs them in order, stops at the first failure, and ends with a table of times.

use std::time::{Duration, Instant};

use crate::Result;
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
    /// An error that names the command which installs it, if it is not there.
    pub(crate) fn require(&self, workspace: &Workspace) -> Result {
        let Some((program, args)) = self.probe.split_first() else { return Ok(()) };
        match crate::command::Run::new(program, workspace.root()).args(args).output() {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("`{}` does not run. Install it with: {}", self.probe.join(" "), self.install).into()),
        }
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
