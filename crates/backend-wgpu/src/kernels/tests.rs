//! Every kernel translates to each shading language, and computes what it says.

mod translate;
