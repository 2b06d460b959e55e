//! The client toolkit compared with Azure's SDK for Python and with etcd.

use std::time::Instant;

use crate::programs;
use xtask::command::Run;
use xtask::step::{Context, Tool};
use xtask::workspace::Workspace;
use xtask::{Result, sdk};

const TOOLS: &[Tool] = &[
    sdk::PYTHON,
    Tool { name: "etcd", probe: &["etcd", "--version"], install: "apt-get install etcd-server" },
    Tool { name: "etcdctl", probe: &["etcdctl", "version"], install: "apt-get install etcd-client" },
];

/// Measures and prints the tables.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let python = sdk::clients(&Context { workspace, deadline })?;
    let (gateway, program) = (programs::gateway(workspace)?, programs::client(workspace)?);
    Run::new(program, workspace.root()).args([gateway, python]).args(quick.then_some("--quick")).passes(deadline)
}
