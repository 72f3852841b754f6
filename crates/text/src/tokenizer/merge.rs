//! The merging loop that byte-pair encoding and SentencePiece share.
//!
//! A text begins as a chain of symbols; the neighbours with the best priority become one symbol, the leftmost first among
//! equals, until no pair merges. A queue of pairs keeps this at `O(n log n)` for a word of any length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::TokenId;

const NONE: u32 = u32::MAX;

/// A stretch of the text that is one token, or (`id` none) a character that the vocabulary lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    pub(crate) id: Option<TokenId>,
    pub(crate) start: u32,
    pub(crate) len: u32,
    prev: u32,
    next: u32,
}

/// Two neighbours that may merge; the order is that of the queue.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    priority: u32,
    left: u32,
    right: u32,
    /// Both lengths together: a symbol that has grown or gone since makes the pair stale.
    len: u32,
    id: TokenId,
}

/// The working memory of the loop, kept from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Pair>>,
}

impl Merger {
    /// Begins a new word.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends the symbol of the next `len` bytes.
    pub(crate) fn push(&mut self, id: Option<TokenId>, len: u32) {
        let i = self.symbols.len() as u32;
        let start = self.symbols.last().map_or(0, |s| s.start + s.len);
        if let Some(last) = self.symbols.last_mut() {
            last.next = i;
        }
        self.symbols.push(Symbol { id, start, len, prev: i.wrapping_sub(1), next: NONE });
    }

    /// Merges until nothing merges. `rule` gives the priority (least first) and the token of two neighbours.
    pub(crate) fn run(&mut self, rule: impl Fn(&Symbol, &Symbol) -> Option<(u32, TokenId)>) {
        for right in 1..self.symbols.len() as u32 {
            self.offer(right - 1, right, &rule);
        }
        while let Some(Reverse(pair)) = self.queue.pop() {
            let (left, right) = (self.symbols[pair.left as usize], self.symbols[pair.right as usize]);
            if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
                continue;
            }
            self.join(&pair, right.next);
            self.offer(left.prev, pair.left, &rule);
            self.offer(pair.left, right.next, &rule);
        }
    }

    /// What is left, in the order of the text.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|s| s.len != 0)
    }

    fn join(&mut self, pair: &Pair, next: u32) {
        self.symbols[pair.right as usize].len = 0;
        let left = &mut self.symbols[pair.left as usize];
        left.id = Some(pair.id);
        left.len = pair.len;
        left.next = next;
        if next != NONE {
            self.symbols[next as usize].prev = pair.left;
        }
    }

    fn offer(&mut self, left: u32, right: u32, rule: &impl Fn(&Symbol, &Symbol) -> Option<(u32, TokenId)>) {
        if left == NONE || right == NONE {
            return;
        }
        let (l, r) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((priority, id)) = rule(l, r) {
            self.queue.push(Reverse(Pair { priority, left, right, len: l.len + r.len, id }));
        }
    }
}
