//! Every kernel translates to each shading language, and computes what it says where the list of op cases has no eye
//! on it: both ways to add up, parts of a weight, extreme numbers, neighbours of what is written.

mod attention;
mod elements;
mod machine;
mod products;
mod rope;
mod translate;
mod write_rows;
