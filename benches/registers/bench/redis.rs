//! Redis: the register beside redis-benchmark's `EVAL` of a script that compares and sets.

use ifmatch_testbed::Server;
use tokio::process::Command;

use super::report::Table;
use super::swaps::{Clients, Counted};
use super::{KEYS, Plan, RECORD, beside};
use crate::Result;
use crate::engine::Engine;

/// Numbers of clients, of the register and of redis-benchmark.
const CLIENTS: [usize; 3] = [16, 64, 256];
/// Swaps per second to expect of redis-benchmark, to choose their number.
const RATE: f64 = 20_000.0;
/// A swap of one record with a revision of eight bytes.
const SCRIPT: &str = "local found = redis.call('GET', KEYS[1]) \
    if found and string.sub(found, 1, 8) ~= ARGV[1] then return found end \
    redis.call('SET', KEYS[1], ARGV[2]) return 1";

pub(super) async fn measure(plan: Plan, table: &mut Table) -> Result {
    let servers = Engine::Redis.start().await?;
    let server = servers.first().ok_or("Redis has no server")?;
    let register = Engine::Redis.connect(&server.url()).await?;
    drop(Clients::load(&register, 0, KEYS, 64).await?);
    for round in 0..plan.rounds {
        println!("round {} of {}", round + 1, plan.rounds);
        for clients in CLIENTS {
            table.push(
                &eval(clients),
                beside(server, benchmark(server, clients, plan)).await?,
            );
            let loaded = Clients::load(&register, 0, KEYS, clients).await?;
            let run = async { Ok(loaded.run(&register, plan.time).await?.1) };
            table.push(&ours(clients), beside(server, run).await?);
        }
    }
    for clients in CLIENTS {
        table.compare(&ours(clients), &eval(clients));
    }
    Ok(())
}

fn ours(clients: usize) -> String {
    format!("register, {clients} clients")
}

fn eval(clients: usize) -> String {
    format!("redis-benchmark, {clients} clients")
}

async fn benchmark(server: &Server, clients: usize, plan: Plan) -> Result<Counted> {
    let record = format!("00000000{}", "7".repeat(RECORD));
    let requests = (plan.time.as_secs_f64() * RATE).round();
    let output = Command::new("redis-benchmark")
        .args([
            "--csv",
            "-p",
            &server.address().port().to_string(),
            "-c",
            &clients.to_string(),
        ])
        .args(["-n", &requests.to_string(), "-r", &KEYS.to_string()])
        .args(["EVAL", SCRIPT, "1", "key:__rand_int__", "00000000", &record])
        .output()
        .await
        .map_err(|error| format!("redis-benchmark: {error}: apt-get install redis-tools"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "test","rps","avg_latency_ms",…: the name of the test contains the script.
    let line = text.lines().last().unwrap_or_default();
    let fields: Vec<f64> = line
        .rsplit("\",\"")
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    let (rate, average) = match fields.as_slice() {
        [.., average, rate] => (*rate, *average),
        _ => return Err(format!("redis-benchmark fails: {text}").into()),
    };
    Ok(Counted::of_rate(rate, requests / rate, average))
}
