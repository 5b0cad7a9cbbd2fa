// SPDX-License-Identifier: Apache-2.0
//! `slowpath sim`: a scenario run by the simulator, its results as numbers, tables and a
//! report.
//!
//! What enters: a scenario file, perhaps with some values changed. What leaves: a summary as
//! text or JSON, Parquet files, an HTML page. An error in a scenario names file, line and key.

mod sweep;

pub use sweep::Sweeping;
pub(crate) use sweep::{Runner, run as run_sweep};

use crate::failure::Failure;
use crate::results;
use slowpath_files::ResultsFolder;
use slowpath_machine::progress::Progress;
use slowpath_machine::scenarios;
use slowpath_model::Micros;
use slowpath_netsim::engine::{self, Simulation, SimulationError};
use slowpath_netsim::results::Results;
use slowpath_netsim::scenario::overrides::{OverrideError, ScenarioText};
use slowpath_netsim::scenario::{Scenario, Substrate, named_text, text_of};
use slowpath_netsim_report::captures::{CaptureError, Captures};
use slowpath_netsim_report::compare::{self, MadeRun};
use slowpath_netsim_report::table::Metadata;
use slowpath_netsim_report::{Report, tables};
use slowpath_text::{Paint, count};
use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest time left that is shown, in seconds: 1,000 hours.
const LONGEST: f64 = 3_600_000.0;

/// What to run, and what to write.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scenario file.
    pub file: PathBuf,
    /// Values to change, `KEY=VALUE`.
    pub set: Vec<String>,
    /// Where to write tables.
    pub tables: Option<PathBuf>,
    /// Tables also as CSV.
    pub csv: bool,
    /// The packets of hosts that are called so, as pcap files beside the tables.
    pub pcap: Option<String>,
    /// Where to write the report.
    pub html: Option<PathBuf>,
    /// JSON instead of text.
    pub json: bool,
    /// No progress, and no text.
    pub quiet: bool,
}

/// A scenario and the text it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub name: String,
    pub text: String,
    pub scenario: Scenario,
}

/// Runs a scenario and writes what is asked for.
///
/// # Errors
/// The scenario is impossible, or something cannot be written.
pub fn run(options: &Options, paint: Paint, out: &mut impl Write) -> Result<(), Failure> {
    let loaded = load(&options.file, &options.set, Substrate::Simulator)?;
    let folder = results::open(options.tables.as_ref(), results::SIM)?;
    let draft = folder.as_ref().map(ResultsFolder::draft);
    let captures = match (&options.pcap, draft) {
        (Some(hosts), Some(draft)) => {
            let captures = Captures::create(draft, &loaded.scenario, hosts).map_err(unwritten)?;
            Some(Rc::new(RefCell::new(captures)))
        }
        _ => None,
    };
    let results = simulate(&loaded, &options.file, options.quiet, captures.clone())?;
    if let Some(captures) = captures.and_then(Rc::into_inner) {
        captures.into_inner().finish().map_err(unwritten)?;
    }
    if let Some(folder) = folder {
        write_tables(folder, options.csv, &loaded, &results)?;
    }
    write(options, &loaded, &results, "sim", paint, out)
}

fn unwritten(error: CaptureError) -> Failure {
    Failure::Write(error.to_string())
}

/// Runs a sweep of a scenario and writes what is asked for.
///
/// # Errors
/// A combination is impossible, or something cannot be written.
pub fn sweep(
    options: &Options,
    sweeping: &Sweeping,
    paint: Paint,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if options.pcap.is_some() {
        return Err(Failure::Usage(
            "--pcap is of one run: leave it out of a sweep, or --seeds and --vary".to_owned(),
        ));
    }
    let runner = Runner {
        substrate: Substrate::Simulator,
        maker: results::SIM_SWEEP,
        kind: "sim",
        run: &|loaded, _| simulate(loaded, &options.file, true, None),
    };
    run_sweep(options, sweeping, &runner, paint, out)
}

/// Compares runs that were made before.
///
/// # Errors
/// One of them cannot be read.
pub fn compare(
    folders: &[PathBuf],
    json: bool,
    paint: Paint,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let runs = folders.iter().map(|folder| MadeRun::read(folder));
    let runs: Vec<MadeRun> = runs
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Compare(error.to_string()))?;
    if json {
        let document = serde_json::json!({
            "type": "sim-compare",
            "flows": compare::compare(&runs),
        });
        writeln!(out, "{document}")?;
    } else {
        compare::write(&runs, paint, out)?;
    }
    Ok(out.flush()?)
}

/// Completes a run's folder of results by its tables.
pub(crate) fn write_tables(
    folder: ResultsFolder,
    csv: bool,
    loaded: &Loaded,
    results: &Results,
) -> Result<(), Failure> {
    let metadata = Metadata {
        family: "sim",
        name: &loaded.name,
        text: &loaded.text,
        seed: loaded.scenario.seed,
        warm_up_ps: loaded.scenario.warm_up.0,
        csv,
    };
    tables::write(folder.draft(), metadata, &loaded.scenario, results)
        .map_err(|error| Failure::Write(error.to_string()))?;
    Ok(folder.commit()?)
}

/// Writes the report and the summary of a run; `kind` is the JSON document's `type`.
pub(crate) fn write(
    options: &Options,
    loaded: &Loaded,
    results: &Results,
    kind: &str,
    paint: Paint,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let report = Report::new(&loaded.name, &loaded.scenario, results);
    if let Some(path) = &options.html {
        slowpath_files::write(path, report.page(&loaded.text))
            .map_err(|error| Failure::Write(format!("cannot write {}: {error}", path.display())))?;
    }
    if options.json {
        let document = report.json(kind).map_err(std::io::Error::from)?;
        writeln!(out, "{document}")?;
    } else if !options.quiet {
        report.write(paint, out)?;
    }
    Ok(out.flush()?)
}

/// Reads a scenario, a file or one by its name, with some values changed, for whatever runs it.
///
/// # Errors
/// It cannot be read, or says something impossible; with line and key.
pub(crate) fn load(file: &Path, set: &[String], substrate: Substrate) -> Result<Loaded, Failure> {
    let unreadable = |reason: String| Failure::Scenario {
        file: file.to_owned(),
        reason,
    };
    let found = scenarios::find(file).map_err(unreadable)?;
    let text = text_of(&found).map_err(|error| unreadable(error.to_string()))?;
    let mut edited = ScenarioText::new(text);
    for (number, argument) in set.iter().enumerate() {
        match edited.set(number, argument) {
            // The scenario reader's error names the place.
            Err(OverrideError::NotToml) => break,
            other => other.map_err(|error| Failure::Usage(error.to_string()))?,
        }
    }
    let folder = found.parent().unwrap_or(Path::new(""));
    let files = |name: &str| named_text(&folder.join(name));
    let scenario = Scenario::parse_for(&edited.text, &files, substrate)
        .map_err(|error| unreadable(edited.explain(&error, set)))?;
    let name = found.file_name().unwrap_or(found.as_os_str());
    Ok(Loaded {
        name: name.to_string_lossy().into_owned(),
        text: edited.text,
        scenario,
    })
}

fn simulate(
    loaded: &Loaded,
    file: &Path,
    quiet: bool,
    captures: Option<Rc<RefCell<Captures>>>,
) -> Result<Results, Failure> {
    let failed = |error: SimulationError| Failure::Scenario {
        file: file.to_owned(),
        reason: error.to_string(),
    };
    let scenario = &loaded.scenario;
    let mut simulation =
        Simulation::new(&scenario.network(), scenario.settings()).map_err(failed)?;
    if let Some(captures) = captures {
        simulation.capture(Box::new(captures));
    }
    let begun = Instant::now();
    let mut progress = (!quiet).then(|| Progress::new("simulating", Duration::ZERO));
    let report = |at: &engine::Progress| {
        let Some(progress) = &mut progress else {
            return;
        };
        let elapsed = begun.elapsed();
        let share = at.now.0 as f64 / at.until.0.max(1) as f64;
        if share > 0.0 {
            // The start of a run hardly predicts its length.
            let length = (elapsed.as_secs_f64() / share).min(LONGEST);
            progress.expect(Duration::from_secs_f64(length));
        }
        let speed = at.hops as f64 / elapsed.as_secs_f64().max(1e-9);
        let note = format!("{} packet hops/s", count(speed as u64));
        progress.at(Micros(elapsed.as_micros() as u64), &note);
    };
    let results = simulation.run(scenario.flows(), report).map_err(failed)?;
    drop(progress);
    Ok(results)
}
