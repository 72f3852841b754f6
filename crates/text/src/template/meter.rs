//! Templates compiled so that looking at values costs fuel.
//!
//! The engine's fuel pays for what a template builds, but not for walking through it again: sixty steps of `a = [a, a]` are
//! cheap to build, and comparing, hashing or printing the result takes for ever. So every instruction that may walk
//! through a value gets others in front that pay for all that the value holds, as often as it holds it.

use std::collections::BTreeMap;

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Token, eval, make_string_output, parse, tokenize,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use super::limits;

/// The name of the filter that pays for a value. A template that uses it itself pays more.
pub(super) const PAY: &str = "minfer_pay";

/// The name of the filter that pays for the items of lists, but not for what those hold.
pub(super) const PAY_ITEMS: &str = "minfer_pay_items";

/// Filters that look at no more than the top of a value.
const SHALLOW_FILTERS: &[&str] =
    &["attr", "count", "d", "default", "first", "items", "last", "length", "list", PAY, PAY_ITEMS];

/// Tests that look at no more than the top of a value.
const SHALLOW_TESTS: &[&str] = &[
    "boolean",
    "defined",
    "false",
    "float",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "sequence",
    "string",
    "true",
    "undefined",
];

/// The most tokens of one tag: far beyond any published template.
const MAX_TOKENS: usize = 8192;

/// No slot of the engine's cache for filters.
const UNCACHED: u8 = !0;

/// A template ready to run.
pub(super) struct Program<'a> {
    instructions: Instructions<'a>,
    blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl<'a> Program<'a> {
    pub(super) fn compile(source: &'a str, syntax: SyntaxConfig) -> Result<Self, Error> {
        check_lengths(source, &syntax)?;
        let name = "chat_template";
        let tree = parse(source, name, syntax)?;
        let mut generator = CodeGenerator::new(name, source);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        Ok(Self {
            instructions: metered(&instructions),
            blocks: blocks.into_iter().map(|(name, block)| (name, metered(&block))).collect(),
        })
    }

    pub(super) fn run(&self, env: &'a Environment<'a>, context: Value) -> Result<String, Error> {
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        eval(env, &self.instructions, context, &self.blocks, &mut out, AutoEscape::None)?;
        drop(out);
        Ok(text)
    }
}

/// Refuses expressions with which the compiler, which takes quadratic time, would be busy for long.
fn check_lengths(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let mut n = 0;
    for token in tokenize(source, false, syntax.clone()) {
        n = match token?.0 {
            Token::VariableStart | Token::BlockStart | Token::VariableEnd | Token::BlockEnd => 0,
            _ => n + 1,
        };
        if n > MAX_TOKENS {
            let message = format!("an expression has more than {MAX_TOKENS} words and signs");
            return Err(Error::new(ErrorKind::SyntaxError, message));
        }
    }
    Ok(())
}

/// The filter [`PAY`].
pub(super) fn pay(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    limits::charge(state, &value)?;
    Ok(value)
}

/// The filter [`PAY_ITEMS`], for a tuple of values.
pub(super) fn pay_items(state: &State<'_, '_>, values: Value) -> Result<Value, Error> {
    for value in values.try_iter()? {
        if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            value.try_iter()?.try_for_each(|_| state.consume_fuel(1))?;
        }
    }
    Ok(values)
}

/// The same instructions with those in front that pay, and jumps to where their targets are now.
fn metered<'a>(old: &Instructions<'a>) -> Instructions<'a> {
    let all: Vec<&Instruction<'a>> = (0..).map_while(|i| old.get(i)).collect();
    // By old index: the new one. A jump goes to what pays for its target.
    let mut moved = vec![0];
    for &instruction in &all {
        let len = 1 + payment(instruction).len();
        moved.push(moved[moved.len() - 1] + len as u32);
    }
    let mut new = Instructions::new(old.name(), old.source());
    for (i, &instruction) in (0..).zip(&all) {
        let line = old.get_line(i).unwrap_or(1).try_into().unwrap_or(u16::MAX);
        for payment in payment(instruction) {
            new.add_with_line(payment, line);
        }
        new.add_with_line(retargeted(instruction, &moved), line);
    }
    new
}

/// What pays for the values that an instruction takes from the stack and may walk through.
fn payment<'a>(instruction: &Instruction<'_>) -> Vec<Instruction<'a>> {
    use Instruction as I;
    match *instruction {
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => pay_for(2),
        I::StringConcat => pay_for(2),
        // The sum of two lists is a view of both, whose length is that of all views within.
        I::Add => packed(Some(2), PAY_ITEMS),
        // Keys are hashed.
        I::BuildMap(pairs) => pay_for(2 * pairs),
        I::GetItem => vec![filter(PAY)],
        I::ApplyFilter(name, n, _) if !SHALLOW_FILTERS.contains(&name) => pay_for_arguments(n),
        I::PerformTest(name, n, _) if !SHALLOW_TESTS.contains(&name) => pay_for_arguments(n),
        I::CallMethod(_, n) => pay_for_arguments(n),
        _ => Vec::new(),
    }
}

/// Pays for the top `n` values.
fn pay_for<'a>(n: usize) -> Vec<Instruction<'a>> {
    packed(Some(n), PAY)
}

/// As [`pay_for`]; where the number of values isn't known, it is itself on top of the stack, and stays there.
fn pay_for_arguments<'a>(n: Option<u16>) -> Vec<Instruction<'a>> {
    packed(n.map(usize::from), PAY)
}

/// Applies a filter to the top `n` values as a tuple, and unpacks them again; a number on the stack comes back as well.
fn packed<'a>(n: Option<usize>, name: &'static str) -> Vec<Instruction<'a>> {
    let mut instructions = vec![Instruction::BuildTuple(n), filter(name), Instruction::UnpackLists(1)];
    if n.is_some() {
        instructions.push(Instruction::DiscardTop);
    }
    instructions
}

fn filter<'a>(name: &'static str) -> Instruction<'a> {
    Instruction::ApplyFilter(name, Some(1), UNCACHED)
}

fn retargeted<'a>(instruction: &Instruction<'a>, moved: &[u32]) -> Instruction<'a> {
    let mut instruction = instruction.clone();
    if let Instruction::Iterate(target)
    | Instruction::Jump(target)
    | Instruction::JumpIfFalse(target)
    | Instruction::JumpIfFalseOrPop(target)
    | Instruction::JumpIfTrueOrPop(target)
    | Instruction::BuildMacro(_, target, _) = &mut instruction
    {
        *target = moved[*target as usize];
    }
    instruction
}
