pub(crate) fn kernels() -> Option<&'static super::Kernels> {
    None
}
