//! The kernels: which variants there are, their WGSL, their bindings, parameters and number of workgroups.
