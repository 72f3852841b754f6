//! The memory of one device as a bar.

use minfer_engine::BackendMemory;

use super::COLUMNS;
use crate::output::Style;

/// Cells of a bar: a column is left free on each side.
const CELLS: usize = COLUMNS - 2;

/// What a cell of a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Weights,
    Kv,
    Rest,
    Unused,
    Budget,
    FreeEnds,
    Others,
    Outside,
}

impl Cell {
    fn glyph(self, style: Style) -> char {
        let (unicode, ascii) = match self {
            Self::Weights => ('█', 'W'),
            Self::Kv => ('▓', 'K'),
            Self::Rest => ('▒', 'A'),
            Self::Unused => ('·', '.'),
            Self::Budget => ('¦', ':'),
            Self::FreeEnds => ('|', '|'),
            Self::Others => ('/', '/'),
            Self::Outside => (' ', ' '),
        };
        if style.utf8 { unicode } else { ascii }
    }

    fn color(self) -> Option<&'static str> {
        match self {
            Self::Weights => Some("34"),
            Self::Kv => Some("36"),
            Self::Rest => Some("35"),
            Self::Budget => Some("1;33"),
            _ => None,
        }
    }
}

/// Bytes that a bar of `backends` must reach to: one axis for all.
pub(super) fn axis(backends: &[BackendMemory]) -> u64 {
    let reach = |b: &BackendMemory| {
        let known = [b.budget_bytes, b.memory.free, b.memory.total];
        known.into_iter().flatten().chain([b.total_bytes]).max().unwrap_or(0)
    };
    backends.iter().map(reach).max().unwrap_or(0).max(1)
}

/// The bar of one backend and its line break.
pub(super) fn bar(backend: &BackendMemory, axis: u64, style: Style) -> String {
    let mut line = String::from(" ");
    for run in cells(backend, axis).chunk_by(|a, b| a == b) {
        let text: String = run.iter().map(|cell| cell.glyph(style)).collect();
        line.push_str(&run[0].color().map_or(text.clone(), |color| style.paint(color, &text)));
    }
    format!("{}\n", line.trim_end())
}

/// What the characters mean that the bars of `backends` have.
pub(super) fn legend(backends: &[BackendMemory], axis: u64, style: Style) -> String {
    let meanings = [
        (Cell::Weights, "weights"),
        (Cell::Kv, "KV"),
        (Cell::Rest, "the rest"),
        (Cell::Unused, "unused"),
        (Cell::Budget, "budget"),
        (Cell::FreeEnds, "free ends"),
        (Cell::Others, "other programs"),
    ];
    let bars: Vec<Cell> = backends.iter().flat_map(|backend| cells(backend, axis)).collect();
    let shown = meanings.iter().filter(|(cell, _)| bars.contains(cell));
    let entries = shown.map(|(cell, meaning)| format!("{} {meaning}", cell.glyph(style)));
    format!(" {}\n", entries.collect::<Vec<_>>().join("  "))
}

fn cells(backend: &BackendMemory, axis: u64) -> Vec<Cell> {
    let at = |bytes: u64| (u128::from(bytes) * CELLS as u128 / u128::from(axis)) as usize;
    let rest = backend.pool_bytes.saturating_add(backend.scratch_bytes).saturating_add(backend.host_bytes);
    let parts = [(Cell::Weights, backend.weights_bytes), (Cell::Kv, backend.kv_bytes), (Cell::Rest, rest)];
    let mut cells = Vec::with_capacity(CELLS);
    for (cell, bytes) in parts.into_iter().filter(|&(_, bytes)| bytes > 0) {
        cells.resize(cells.len() + at(bytes).max(1), cell);
    }
    let extend = |cells: &mut Vec<Cell>, end: usize, cell| cells.resize(end.max(cells.len()), cell);
    if let (Some(free), Some(total)) = (backend.memory.free, backend.memory.total) {
        extend(&mut cells, at(free), Cell::Unused);
        if total > free {
            cells.push(Cell::FreeEnds);
        }
        extend(&mut cells, at(total), Cell::Others);
    } else if let Some(budget) = backend.budget_bytes {
        extend(&mut cells, at(budget), Cell::Unused);
    }
    cells.resize(CELLS, Cell::Outside);
    if let Some(budget) = backend.budget_bytes {
        cells[at(budget).min(CELLS - 1)] = Cell::Budget;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ascii(backend: &BackendMemory, axis: u64) -> String {
        bar(backend, axis, Style::default())
    }

    #[test]
    fn a_category_that_is_there_has_a_cell() {
        let backend =
            BackendMemory { weights_bytes: 100 * MIB, kv_bytes: 1, host_bytes: 1, ..Default::default() };
        let bar = ascii(&backend, 200 * MIB);
        assert_eq!(bar, format!(" {}KA\n", "W".repeat(39)));
    }

    #[test]
    fn a_bar_never_leaves_its_80_columns() {
        let backend = BackendMemory {
            weights_bytes: u64::MAX,
            kv_bytes: u64::MAX,
            pool_bytes: u64::MAX,
            budget_bytes: Some(0),
            ..Default::default()
        };
        assert_eq!(ascii(&backend, u64::MAX).trim_end().chars().count(), 79);
        assert!(ascii(&backend, u64::MAX).starts_with(" :WW"));
    }

    #[test]
    fn colours_add_no_characters() {
        let backend = BackendMemory { weights_bytes: 5, kv_bytes: 5, ..Default::default() };
        let colored = bar(&backend, 10, Style { color: true, utf8: false });
        assert_eq!(
            colored.replace("\x1b[34m", "").replace("\x1b[36m", "").replace("\x1b[0m", ""),
            ascii(&backend, 10)
        );
    }
}
