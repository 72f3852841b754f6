//! From a `MODEL` to a plan and to a loaded engine: what the commands have in common.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minfer_engine::{Engine, ModelFile, Options, Plan, Planned};
use minfer_fetch::{Fetcher, Reference};

use crate::args::{Device, EngineArgs, ModelArgs};
use crate::error::CliError;
use crate::machine::{self, LocalMachine};
use crate::progress::Bar;
use crate::{env, output, render};

/// A loaded engine, and how long that took.
pub(crate) struct Session {
    /// The engine.
    pub(crate) engine: Engine,
    /// From the start of planning to the last weight.
    pub(crate) load: Duration,
    /// What the device reads from its memory in a second, where that was measured.
    pub(crate) device_bytes_per_second: Option<f64>,
    report: MemoryReport,
}

/// The path of the model, fetched if need be. What is wrong with the options shows before anything is fetched.
///
/// # Errors
/// If a setting of the memory policy can't be read, the device or the kernels aren't there, or the model can't be had.
pub(crate) fn resolve(args: &ModelArgs) -> Result<PathBuf, CliError> {
    args.engine.options().check()?;
    machine::cpu(args.engine.n_threads())?;
    // A search takes time; without a device by name it can't fail.
    if !matches!(args.engine.device, Device::Auto | Device::Cpu) {
        LocalMachine::find(&args.engine)?;
    }
    let reference = match &args.model {
        // What isn't Unicode can only be a path.
        Some(model) => match model.to_str() {
            Some(text) => Some(text),
            None => return Ok(model.into()),
        },
        None => None,
    };
    if let Some(Reference::Path(path)) = reference.map(Reference::parse).transpose()? {
        return Ok(path);
    }
    let mut options = minfer_fetch::Options::new(env::cache_dir().ok_or(CliError::NoCache)?);
    if let Some(hub) = env::hub() {
        options.hub = hub;
    }
    Ok(Fetcher::new(options).resolve(reference, &mut Bar::new(args.output.quiet))?)
}

/// Reads the model's metadata, fetching the file if need be. No weight is touched.
///
/// # Errors
/// If the model can't be had, or isn't one that minfer runs.
pub(crate) fn open(args: &ModelArgs) -> Result<ModelFile, CliError> {
    open_with(args, ModelFile::open)
}

/// As [`open`], but a download needn't be finished.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_header(args: &ModelArgs) -> Result<ModelFile, CliError> {
    open_with(args, ModelFile::open_header)
}

fn open_with(
    args: &ModelArgs,
    open: impl FnOnce(&Path) -> Result<ModelFile, minfer_engine::Error>,
) -> Result<ModelFile, CliError> {
    let path = resolve(args)?;
    match path.to_str() {
        Some(text) if text.contains(' ') && !path.exists() => {
            Err(CliError::PromptForModel { text: text.into() })
        }
        _ => Ok(open(&path)?),
    }
}

/// Where the bytes of `file` would go.
///
/// # Errors
/// If a setting of the memory policy can't be read, or the device or the kernels aren't there.
pub(crate) fn plan(file: &ModelFile, args: &EngineArgs, options: &Options) -> Result<Plan, CliError> {
    Ok(minfer_engine::plan(file, options, &LocalMachine::find(args)?.host())?)
}

/// Loads `file`, and tells what the plan's notes are.
///
/// # Errors
/// If the plan is refused, before a weight is read: then the memory report is that plan. If the file or the device fails.
pub(crate) fn load(file: ModelFile, args: &ModelArgs, options: &Options) -> Result<Session, CliError> {
    load_on(&LocalMachine::find(&args.engine)?, file, args, options)
}

/// As [`load`], after measuring how fast the device reads its memory.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_measuring(
    file: ModelFile,
    args: &ModelArgs,
    options: &Options,
) -> Result<Session, CliError> {
    load_on(&LocalMachine::find(&args.engine)?.measuring(), file, args, options)
}

fn load_on(
    machine: &LocalMachine,
    file: ModelFile,
    args: &ModelArgs,
    options: &Options,
) -> Result<Session, CliError> {
    let report = MemoryReport::create(args)?;
    let start = Instant::now();
    let planned = Planned::new(file, options, &machine.host())?;
    if let Some(refusal) = CliError::refusal(planned.plan()) {
        report.write(planned.plan())?;
        return Err(refusal);
    }
    // Before memory is taken: what a note warns of may end the process.
    let told = planned.plan().notes.clone();
    show_notes(&told, args);
    let mut bar = Bar::new(args.output.quiet);
    let engine = Engine::load(planned, machine, &mut |progress| {
        bar.step("loading", progress.done.get() >> 20, progress.total.get() >> 20);
    })?;
    drop(bar);
    let new = engine.plan().notes.iter().filter(|note| !told.contains(note));
    show_notes(new, args);
    let placed = engine.offload_report();
    let remarks = [placed.as_ref().and_then(|_| machine.remark()), placed];
    if !args.output.quiet {
        remarks.into_iter().flatten().for_each(|remark| output::note(&format!("note: {remark}")));
    }
    let device_bytes_per_second = machine.bytes_per_second();
    Ok(Session { engine, load: start.elapsed(), device_bytes_per_second, report })
}

/// Tells what is remarkable about a plan.
pub(crate) fn show_notes<'a>(notes: impl IntoIterator<Item = &'a String>, args: &ModelArgs) {
    if !args.output.quiet {
        notes.into_iter().for_each(|note| output::note(&format!("note: {note}")));
    }
}

impl Session {
    /// Ends the work: writes the memory report, and with `-v` shows the plan beside what is held.
    ///
    /// # Errors
    /// If the report can't be written.
    pub(crate) fn finish(self, args: &ModelArgs) -> Result<(), CliError> {
        let measured = self.engine.memory_report();
        self.report.write(&measured)?;
        if args.output.verbose {
            output::note(&render::report_table(self.engine.plan(), &measured));
        }
        Ok(())
    }
}

/// The file of `--memory-report`, opened before the work so that it isn't done in vain.
pub(crate) struct MemoryReport {
    file: Option<(PathBuf, File)>,
}

impl MemoryReport {
    /// Creates the file, if one is asked for.
    ///
    /// # Errors
    /// If it can't be created.
    pub(crate) fn create(args: &ModelArgs) -> Result<Self, CliError> {
        let open = |path: &PathBuf| -> Result<_, CliError> { Ok((path.clone(), create(path)?)) };
        Ok(Self { file: args.memory_report.as_ref().map(open).transpose()? })
    }

    /// Writes the plan of a command that loads nothing, if a report is asked for.
    ///
    /// # Errors
    /// As [`plan`] and [`write`](Self::write).
    pub(crate) fn write_plan(self, file: &ModelFile, args: &EngineArgs) -> Result<(), CliError> {
        if self.file.is_none() {
            return Ok(());
        }
        self.write(&plan(file, args, &args.options())?)
    }

    /// Writes the report.
    ///
    /// # Errors
    /// If it can't be written: a full disk.
    pub(crate) fn write(self, report: &Plan) -> Result<(), CliError> {
        let Some((path, mut file)) = self.file else { return Ok(()) };
        let text = output::json(report) + "\n";
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(CliError::write(&path))
    }
}

/// Writes a whole file.
///
/// # Errors
/// If it can't be written, or holds a model.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    create(path)?.write_all(text.as_bytes()).map_err(CliError::write(path))
}

/// A new, empty file for output; a file that is there is emptied, unless it is a model: two paths are easily mixed up.
fn create(path: &Path) -> Result<File, CliError> {
    if path.is_file() && starts_as_model(path) {
        return Err(CliError::OverwritesModel { path: path.display().to_string() });
    }
    File::create(path).map_err(CliError::write(path))
}

fn starts_as_model(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"GGUF"
}
