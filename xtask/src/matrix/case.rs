//! The cases: lists, and their product.

use super::subject::Subject;
use crate::models::minfer;
use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

/// Contexts, as far as the model's own, which comes last.
const CONTEXTS: &[usize] = &[128, 1024];
const BATCHES: &[usize] = &[1, 32, 512];
const KV_TYPES: &[&str] = &["f16", "f32", "q8_0"];
/// Batch and KV type that the command line has by default: the longest context is filled with them.
const DEFAULT: (usize, &str) = (512, "f16");
/// Numbers of tokens that end within each rung.
const PROMPTS: &[usize] = &[1, 6, 22, 86, 342];
/// Tokens beyond the first batch.
const MORE: usize = 6;
/// Scratch depends on it, so it isn't left to the machine.
const THREADS: &str = "2";

/// One request and what is checked of it.
pub(super) struct Case {
    pub(super) request: Request,
    pub(super) check: Check,
}

/// What decides how much memory is planned.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) model: String,
    pub(super) has_text: bool,
    pub(super) ctx: usize,
    pub(super) batch: usize,
    pub(super) kv_type: &'static str,
}

/// What is checked of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    /// It is refused, with any budget.
    Refused,
    /// The plan is what a command came to hold.
    Measured(Work),
    /// The smallest budget, and what is refused below.
    Budget,
    /// The whole context is used, under a hard limit.
    Filled,
}

/// A command that runs the model, on so many tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Run(usize),
    Perplexity(usize),
    Bench(usize),
}

impl Request {
    /// Plans it, in JSON.
    pub(super) fn plan(&self) -> Command {
        let mut command = self.command("plan");
        command.arg("--json");
        command
    }

    /// The shortest command that does `work` and answers in JSON.
    pub(super) fn work(&self, work: Work) -> Command {
        match work {
            Work::Run(tokens) => self.run(tokens, 2),
            Work::Perplexity(tokens) => {
                let mut command = self.command("perplexity");
                command.args(["--json", "--tokens", &vec!["5"; tokens].join(",")]);
                command
            }
            Work::Bench(tokens) => {
                let mut command = self.command("bench");
                command.args(["--json", "-r", "1", "-n", "1", "-p", &tokens.to_string()]);
                command
            }
        }
    }

    /// Generates `n` tokens after a text of so many, or one more where the model has a token of its own to begin with.
    pub(super) fn run(&self, tokens: usize, n: usize) -> Command {
        let mut command = self.command("run");
        command.args(["--json", "--no-template", "--ignore-eos", "--temp", "0"]);
        command.args(["--max-tokens", &n.to_string(), &vec!["a"; tokens].join(" ")]);
        command
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = minfer();
        command.args([subcommand, &self.model, "--quiet"]).args(self.options());
        command
    }

    fn options(&self) -> [String; 8] {
        let (ctx, batch) = (self.ctx.to_string(), self.batch.to_string());
        ["--ctx", &ctx, "--batch", &batch, "--kv-type", self.kv_type, "--threads", THREADS].map(String::from)
    }
}

/// All cases of a model but the [`longest`], which takes minutes.
pub(super) fn cases(subject: &Subject) -> Vec<Case> {
    requests(subject).flat_map(|request| checks(subject, &request)).collect()
}

/// The model's own context from its beginning to its end.
pub(super) fn longest(subject: &Subject) -> Option<Case> {
    let longest = requests(subject).find(|r| r.ctx == subject.max_ctx && (r.batch, r.kv_type) == DEFAULT);
    longest.filter(|r| r.ctx > CONTEXTS[0]).map(|request| Case { request, check: Check::Filled })
}

fn requests(subject: &Subject) -> impl Iterator<Item = Request> {
    let below = CONTEXTS.iter().copied().filter(|&ctx| ctx < subject.max_ctx);
    let contexts = below.chain([subject.max_ctx]);
    let batches = contexts.flat_map(|ctx| BATCHES.iter().map(move |&batch| (ctx, batch)));
    let all = batches.flat_map(|(ctx, batch)| KV_TYPES.iter().map(move |&kv_type| (ctx, batch, kv_type)));
    all.map(|(ctx, batch, kv_type)| Request {
        model: subject.model.clone(),
        has_text: subject.has_text,
        ctx,
        batch,
        kv_type,
    })
}

fn checks(subject: &Subject, request: &Request) -> Vec<Case> {
    let mut checks = Vec::new();
    if request.kv_type == "q8_0" && !subject.head.is_multiple_of(32) {
        checks.push(Check::Refused);
    } else {
        checks.extend(works(request).map(Check::Measured));
        checks.push(Check::Budget);
        // How many tokens of a context are used is data: the longer ones would take hours and show nothing new.
        if request.ctx == CONTEXTS[0] {
            checks.push(Check::Filled);
        }
    }
    checks.into_iter().map(|check| Case { request: request.clone(), check }).collect()
}

/// Every command on a prompt for each rung, and on one that takes a second batch.
fn works(request: &Request) -> impl Iterator<Item = Work> {
    let commands: &[fn(usize) -> Work] = &[Work::Run, Work::Perplexity, Work::Bench];
    let commands = if request.has_text { commands } else { &commands[1..] };
    let (ctx, batch) = (request.ctx, request.batch.min(request.ctx));
    let within = PROMPTS.iter().copied().filter(move |&tokens| tokens <= batch);
    let prompts = within.chain([batch + MORE]).filter(move |&tokens| tokens + 2 < ctx);
    prompts.flat_map(|tokens| commands.iter().map(move |command| command(tokens)))
}

impl Case {
    /// The entries of the lists that it was made from.
    fn entries(&self) -> [String; 5] {
        let Request { model, ctx, batch, kv_type, .. } = &self.request;
        let (ctx, batch, check) =
            (format!("ctx {ctx}"), format!("batch {batch}"), format!("{:?}", self.check));
        [model.clone(), ctx, batch, (*kv_type).to_owned(), check]
    }
}

/// The cases in an order that has every kind of them early.
pub(super) fn spread(cases: impl Iterator<Item = Case>) -> Vec<Case> {
    const ROUNDS: usize = 41;
    let mut numbered: Vec<(usize, Case)> = cases.enumerate().collect();
    numbered.sort_by_key(|(nth, _)| nth % ROUNDS);
    numbered.into_iter().map(|(_, case)| case).collect()
}

/// Those cases that have an entry which none before them has.
pub(super) fn thinned(mut cases: Vec<Case>) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    cases.retain(|case| case.entries().map(|entry| seen.insert(entry)).contains(&true));
    cases
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.model, self.options().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(max_ctx: usize, head: usize, has_text: bool) -> Subject {
        Subject { model: format!("{max_ctx} {head}"), max_ctx, head, has_text }
    }

    fn entries(cases: &[Case]) -> BTreeSet<String> {
        cases.iter().flat_map(Case::entries).collect()
    }

    #[test]
    fn every_entry_of_every_list_is_among_the_few_cases() {
        let real = [subject(8192, 64, true), subject(32768, 256, true)];
        let tiny = [subject(256, 128, false), subject(256, 64, false), subject(128, 16, true)];
        let all = || real.iter().chain(&tiny).flat_map(cases).collect::<Vec<_>>();
        let few = thinned(spread(all().into_iter()));
        assert_eq!(entries(&few), entries(&all()));
        assert!(few.len() * 20 < all().len(), "{} of {}", few.len(), all().len());
        let of_the_largest = few.iter().filter(|case| case.request.model == real[1].model).count();
        assert!(of_the_largest * 2 < few.len(), "{of_the_largest} of {}", few.len());
    }
}
