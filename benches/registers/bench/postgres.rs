//! PostgreSQL: the register beside pgbench's single-row `UPDATE`, and several processes beside one.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_register::Register;
use ifmatch_testbed::{Server, postgres};
use tokio::process::Command;

use super::report::Table;
use super::swaps::{Clients, Counted, in_processes};
use super::{KEYS, Plan, RECORD, beside, counted};
use crate::Result;
use crate::engine::Engine;

/// Numbers of clients of the register.
const CLIENTS: [usize; 4] = [1, 16, 64, 256];
/// Numbers of pgbench's connections.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Processes, each with a number of clients.
const PROCESSES: [(usize, usize); 2] = [(1, 64), (8, 64)];

pub(super) async fn measure(plan: Plan, table: &mut Table) -> Result {
    let servers = Engine::Postgres.start().await?;
    let server = servers.first().ok_or("PostgreSQL has no server")?;
    let register = Engine::Postgres.connect(&server.url()).await?;
    drop(Clients::load(&register, 0, KEYS, 64).await?);
    postgres::sql(
        server,
        "CREATE TABLE plain (LIKE ifmatch_records INCLUDING ALL) WITH (fillfactor = 70)",
    );
    postgres::sql(server, "INSERT INTO plain SELECT * FROM ifmatch_records");
    postgres::sql(server, "VACUUM ANALYZE");
    for round in 0..plan.rounds {
        println!("round {} of {}", round + 1, plan.rounds);
        for connections in CONNECTIONS {
            let round = beside(server, pgbench(server, connections, plan.time)).await?;
            table.push(&plain(connections), round);
            // The same number of clients, right after.
            register_round(server, &register, connections, plan, table).await?;
        }
        register_round(server, &register, 256, plan, table).await?;
        for (processes, clients) in PROCESSES {
            let round =
                in_processes(Engine::Postgres, server, processes, clients, plan.time).await?;
            table.push(&several(processes, clients), round);
        }
    }
    for (clients, connections) in CLIENTS.into_iter().zip([1, 16, 64, 64]) {
        table.compare(&ours(clients), &plain(connections));
    }
    table.compare(&several(8, 64), &several(1, 64));
    Ok(())
}

async fn register_round(
    server: &Server,
    register: &Arc<dyn Register>,
    clients: usize,
    plan: Plan,
    table: &mut Table,
) -> Result {
    let loaded = Clients::load(register, 0, KEYS, clients).await?;
    let run = async { Ok(loaded.run(register, plan.time).await?.1) };
    table.push(&ours(clients), beside(server, run).await?);
    Ok(())
}

fn ours(clients: usize) -> String {
    format!("register, {}", counted(clients, "client"))
}

fn plain(connections: usize) -> String {
    format!("pgbench, {}", counted(connections, "connection"))
}

fn several(processes: usize, clients: usize) -> String {
    format!("{} of {clients} clients", counted(processes, "process"))
}

/// Updates rows of a table like the register's, each with a prepared statement of its own.
async fn pgbench(server: &Server, connections: usize, time: Duration) -> Result<Counted> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("update.sql");
    let key = r"convert_to('bench/' || lpad(:number::text, 5, '0'), 'UTF8')";
    let record = format!("decode(repeat('07', {RECORD}), 'hex')");
    let update =
        format!("UPDATE plain SET revision = revision + 1, record = {record} WHERE key = {key};");
    fs::write(
        &script,
        format!("\\set number random(0, {})\n{update}\n", KEYS - 1),
    )?;
    // pgbench takes whole seconds.
    let seconds = time.as_secs().max(1);
    let mut command = Command::from(postgres::program("pgbench"));
    command.args([
        "--no-vacuum",
        "--protocol=prepared",
        "--jobs=2",
        "--time",
        &seconds.to_string(),
    ]);
    command
        .args(["--client", &connections.to_string(), "--file"])
        .arg(&script);
    let output = command.arg(server.url()).output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |start: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(start)?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
    };
    let (rate, latency) = field("tps = ")
        .zip(field("latency average = "))
        .ok_or_else(|| {
            format!(
                "pgbench fails: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            )
        })?;
    Ok(Counted::of_rate(
        rate,
        f64::from(u32::try_from(seconds)?),
        latency,
    ))
}
