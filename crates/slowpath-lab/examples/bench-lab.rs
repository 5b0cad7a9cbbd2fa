// SPDX-License-Identifier: Apache-2.0
//! How fast Linux's TCP runs in virtual time: 1,000 flows over a fat-tree of 16 hosts, with the
//! packet path in the kernel and, for comparison, in a process inside. The last line is JSON.

use slowpath_lab::virtual_time::{HZ, Kernel, Options, PacketPath, Run, SOURCE, forward, run};
use slowpath_netsim::scenario::{Scenario, Substrate};
use std::error::Error;
use std::path::{Path, PathBuf};

/// The scenario that is run unless another is named.
const SCENARIO: &str = include_str!("../../../scenarios/lab/fat-tree.toml");
/// Runs of each path; the fastest counts.
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The kernel gives its first process more arguments than it is asked to.
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--forward", plan, ..] => Ok(forward(Path::new(plan))?),
        [] => bench(&Scenario::parse_for(
            SCENARIO,
            &|file| std::fs::read_to_string(file),
            Substrate::VirtualTime,
        )?),
        [file] => bench(&Scenario::load_for(
            Path::new(file),
            Substrate::VirtualTime,
        )?),
        _ => Err(format!("usage: bench-lab [SCENARIO.toml], not {arguments:?}").into()),
    }
}

fn bench(scenario: &Scenario) -> Result<(), Box<dyn Error>> {
    let kernel = Kernel::find(SOURCE, HZ)?;
    let inside = measure(&kernel, scenario, &PacketPath::Kernel, RUNS)?;
    report("packet path in the kernel", &inside);
    let program = std::env::current_exe()?;
    let process = PacketPath::Process(program, vec!["--forward".to_owned()]);
    // It takes long, and its speed hardly differs from run to run.
    let beside = measure(&kernel, scenario, &process, 1)?;
    report("packet path in a process inside", &beside);
    let virtual_seconds = inside.virtual_time.0 as f64 / 1e12;
    println!(
        "{{\"packets_per_second\":{:.0},\"virtual_over_wall\":{:.3},\"hosts\":{},\"flows\":{},\
         \"packets\":{},\"process_packets_per_second\":{:.0},\"times_process\":{:.1}}}",
        speed(&inside),
        virtual_seconds / inside.wall.as_secs_f64(),
        scenario.topology.hosts().len(),
        inside.results.flows.len(),
        inside.packets,
        speed(&beside),
        speed(&inside) / speed(&beside)
    );
    Ok(())
}

fn speed(run: &Run) -> f64 {
    run.packets as f64 / run.wall.as_secs_f64()
}

fn report(what: &str, run: &Run) {
    let flows = &run.results.flows;
    println!(
        "{what}: {} of {} flows done, {} packets in {:.2} s, {:.0} a second",
        flows.iter().filter(|flow| flow.finish.is_some()).count(),
        flows.len(),
        run.packets,
        run.wall.as_secs_f64(),
        speed(run)
    );
}

/// The fastest of some runs, without captures: both paths alike.
fn measure(
    kernel: &Kernel,
    scenario: &Scenario,
    path: &PacketPath,
    runs: usize,
) -> Result<Run, Box<dyn Error>> {
    let options = Options {
        capture: None,
        events: false,
        info_every: None,
        path: path.clone(),
        ..Options::default()
    };
    let mut fastest: Option<Run> = None;
    for _ in 0..runs {
        let folder = Folder::new()?;
        let run = run(kernel, scenario, &options, &folder.0, &mut |_| {})?;
        if fastest
            .as_ref()
            .is_none_or(|fastest| run.wall < fastest.wall)
        {
            fastest = Some(run);
        }
    }
    fastest.ok_or_else(|| "no runs".into())
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("bench-lab-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
