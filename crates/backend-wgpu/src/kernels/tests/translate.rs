//! Every variant is valid, and becomes Metal, HLSL and SPIR-V.

use minfer_graph::{Activation, RopeStyle};
use minfer_tensor::DType;
use naga::back::{hlsl, msl, spv};
use naga::proc::BoundsCheckPolicies;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use crate::kernels::{
    Access, AttentionParams, ElementParams, GetRowsParams, Kernel, MatMulParams, RmsNormParams, RopeParams,
    WriteRowsParams,
};

/// Every format, activation and style, with and without subgroups.
pub(super) fn variants() -> Vec<Kernel> {
    let mut all = vec![Kernel::Add, Kernel::Scale, Kernel::Softcap];
    all.extend([Activation::Silu, Activation::GeluTanh].map(Kernel::Glu));
    for format in DType::ALL.into_iter().filter(|&format| Kernel::reads(format)) {
        all.extend([Access::Read, Access::ReadWrite].map(|table| Kernel::GetRows { format, table }));
        all.extend([1, 2, 3, 100].map(|rows| Kernel::product(format, false, rows)));
    }
    for style in [RopeStyle::Adjacent, RopeStyle::Halves] {
        all.extend([false, true].map(|factors| Kernel::Rope { style, factors }));
    }
    for state in DType::ALL.into_iter().filter(|&state| Kernel::keeps(state)) {
        all.push(Kernel::WriteRows { state });
        all.extend([32, 64, 96, 256].map(|head_dim| Kernel::Attention { state, head_dim, subgroup: false }));
    }
    all.extend([32, 4096].map(|cols| Kernel::rms_norm(false, cols)));
    let with_subgroups = all.clone().into_iter().filter_map(with_subgroups);
    all.extend(with_subgroups.collect::<Vec<_>>());
    all
}

fn with_subgroups(kernel: Kernel) -> Option<Kernel> {
    match kernel {
        Kernel::MatVec { format, tokens, .. } => Some(Kernel::MatVec { format, tokens, subgroup: true }),
        Kernel::RmsNorm { wide, .. } => Some(Kernel::RmsNorm { wide, subgroup: true }),
        Kernel::Attention { state, head_dim, .. } => {
            Some(Kernel::Attention { state, head_dim, subgroup: true })
        }
        _ => None,
    }
}

fn validate(kernel: Kernel) -> (naga::Module, ModuleInfo) {
    let source = kernel.source();
    let module = naga::front::wgsl::parse_str(&source)
        .unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&source)));
    let capabilities = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    if source.contains("subgroup") {
        validator = Validator::new(ValidationFlags::all(), capabilities | Capabilities::SUBGROUP);
        validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    }
    let info =
        validator.validate(&module).unwrap_or_else(|e| panic!("{kernel:?}: {}", e.emit_to_string(&source)));
    (module, info)
}

#[test]
fn every_kernel_becomes_metal() {
    for kernel in variants() {
        let (module, info) = validate(kernel);
        let mut resources = msl::EntryPointResources {
            immediates_buffer: Some(0),
            sizes_buffer: Some(30),
            ..Default::default()
        };
        for binding in module.global_variables.iter().filter_map(|(_, global)| global.binding) {
            let slot = u8::try_from(binding.binding + 1).expect("few bindings");
            let target = msl::BindTarget { buffer: Some(slot), mutable: true, ..Default::default() };
            resources.resources.insert(binding, target);
        }
        let options = msl::Options {
            lang_version: (2, 4),
            per_entry_point_map: [("main".to_owned(), resources)].into(),
            fake_missing_bindings: false,
            zero_initialize_workgroup_memory: false,
            bounds_check_policies: BoundsCheckPolicies::default(),
            ..Default::default()
        };
        let written = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default());
        let (_, translation) = written.unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        for name in translation.entry_point_names {
            name.unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        }
    }
}

#[test]
fn every_kernel_becomes_hlsl() {
    for kernel in variants() {
        let (module, info) = validate(kernel);
        let bindings = module.global_variables.iter().filter_map(|(_, global)| global.binding);
        let target = |register| hlsl::BindTarget { register, ..Default::default() };
        let options = hlsl::Options {
            shader_model: hlsl::ShaderModel::V6_4,
            binding_map: bindings.map(|binding| (binding, target(binding.binding))).collect(),
            fake_missing_bindings: false,
            zero_initialize_workgroup_memory: false,
            immediates_target: Some(hlsl::BindTarget { space: 1, ..Default::default() }),
            ..Default::default()
        };
        let mut text = String::new();
        let pipeline = hlsl::PipelineOptions::default();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None);
        for name in written.unwrap_or_else(|e| panic!("{kernel:?}: {e}")).entry_point_names {
            name.unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        }
    }
}

#[test]
fn every_kernel_becomes_spir_v() {
    for kernel in variants() {
        let (module, info) = validate(kernel);
        let options = spv::Options {
            lang_version: (1, 3),
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            ..Default::default()
        };
        let words = spv::write_vec(&module, &info, &options, None);
        assert!(!words.unwrap_or_else(|e| panic!("{kernel:?}: {e}")).is_empty());
    }
}

/// Bytes of the parameters that the host passes.
fn params_size(kernel: Kernel) -> usize {
    match kernel {
        Kernel::MatVec { .. } | Kernel::MatMul { .. } => size_of::<MatMulParams>(),
        Kernel::GetRows { .. } => size_of::<GetRowsParams>(),
        Kernel::RmsNorm { .. } => size_of::<RmsNormParams>(),
        Kernel::Add | Kernel::Scale | Kernel::Softcap | Kernel::Glu(_) => size_of::<ElementParams>(),
        Kernel::Rope { .. } => size_of::<RopeParams>(),
        Kernel::WriteRows { .. } => size_of::<WriteRowsParams>(),
        Kernel::Attention { .. } => size_of::<AttentionParams>(),
    }
}

#[test]
fn bindings_and_parameters_are_those_of_the_host() {
    for kernel in variants() {
        let (module, _) = validate(kernel);
        let mut found: Vec<(u32, Access)> = Vec::new();
        for (_, global) in module.global_variables.iter() {
            let naga::AddressSpace::Storage { access } = global.space else { continue };
            let written = access.contains(naga::StorageAccess::STORE);
            let access = if written { Access::ReadWrite } else { Access::Read };
            found.push((global.binding.expect("a storage buffer is bound").binding, access));
        }
        found.sort_by_key(|(binding, _)| *binding);
        assert!(found.iter().map(|(binding, _)| *binding).eq(0..found.len() as u32), "{kernel:?}");
        assert!(found.iter().map(|(_, access)| access).eq(kernel.bindings()), "{kernel:?}");
        let mut globals = module.global_variables.iter().map(|(_, global)| global);
        let params = globals.find(|global| global.space == naga::AddressSpace::Immediate);
        let size = module.types[params.expect("every kernel has parameters").ty].inner.size(module.to_ctx());
        assert_eq!(size as usize, params_size(kernel), "{kernel:?}");
    }
}
