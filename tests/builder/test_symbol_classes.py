"""What a name means: a table, and torch's own headers and this machine's C library as the measure."""

from __future__ import annotations

import re

import pytest

from harness.builder.symbol_classes import TENSOR_OPS, classify, classify_operator, is_tensor_op, qualified

CLASSES = {
    "compute": """at::_ops::mm::call at::_ops::mul_Tensor::redispatch at::_ops::select_backward::call
        at::_ops::slice_scatter::call at::native::layer_norm_cpu at::cpu::softmax at::cuda::mm at::cuda::isin
        at::Tensor::index at::Tensor::relu_ aoti_torch_cpu_bmm_out aoti_torch_cuda__scaled_mm
        aoti_torch_aten_amax aoti_torch_mm_out torch::nn::LinearImpl::forward
        at::cuda::detail::f8f8bf16_rowwise
        pytorch_flash::run_mha_fwd_ aoti_torch_operator_of_the_future torch_matmul""",
    "library": """cublasGemmEx cublasLtMatmul cudnnConvolutionForward cusparseSpMM cusolverDnCreate
        cufftExecC2C
        curandGenerateUniform ncclAllReduce mkl_sparse_s_mv cblas_sgemm sgemm_ dgemm_ sgemm sgetrf_ ssyevd_
        LAPACKE_sgesv dnnl_sgemm vsExp vmdSin at::cuda::blas::gemm at::native::cudnn_convolution
        at::native::cpublas::brgemm at::native::mkldnn_linear at::cuda::getCurrentCUDABlasHandle
        torch_get_current_cuda_blas_handle ideep::tensor dnnl::matmul c10d::ProcessGroup""",
    "dispatcher": """aoti_torch_call_dispatcher torch_call_dispatcher c10::Dispatcher::findSchemaOrThrow
        c10::Dispatcher::singleton torch::jit::getOperatorForLiteral torch::jit::load PyObject_Call
        PyObject_CallFunctionObjArgs PyImport_ImportModule PyRun_StringFlags PyEval_EvalCode""",
    "tensor": """at::_ops::empty_memory_format::call at::_ops::select_int::call at::_ops::zeros_like::call
        at::_ops::to_dtype::call at::_ops::fill__Scalar::call at::TensorBase::data_ptr at::Tensor::Tensor
        at::Tensor::narrow at::detail::empty_cpu at::native::canUse32BitIndexMath at::get_num_threads
        at::internal::set_thread_num at::cuda::empty_strided at::TensorIteratorBase::numel at::globalContext
        aoti_torch_get_size torch_get_mutable_data_ptr aoti_torch_empty_strided aoti_torch_library_def
        aoti_torch_aten_narrow torch_library_impl torch_parallel_for torch::Library::_def
        torch::CppFunction::CppFunction torch::jit::parseSchema c10::Dispatcher::registerLibrary""",
    "runtime": """cudaMalloc cudaLaunchKernelExC __cudaRegisterFatBinary cuTensorMapEncodeTiled
        nvrtcCompileProgram
        c10::cuda::getCurrentCUDAStream at::cuda::getCurrentDeviceProperties at::cuda::warp_size
        aoti_torch_get_current_cuda_stream aoti_torch_cuda_guard_set_index aoti_torch_create_device_guard""",
    "system": """dlopen dlsym system fork execve posix_spawn ptrace process_vm_writev socket connect mmap
        memfd_create open64 fopen __open64_2 pthread_create sigaction setenv syscall
        std::thread::_M_start_thread
        std::basic_ofstream clone""",
    None: """memcpy expf cpowf strlen sched_yield qsort free PyModule_Create2 PyErr_SetString
        PyEval_SaveThread
        c10::detail::torchCheckFail c10::TensorType::get std::ios_base::Init::Init omp_get_thread_num
        Sleef_expf16_u10 my_own::kernel opendoor clones""",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"), [(n, kind) for kind, names in CLASSES.items() for n in names.split()]
)
def test_every_name_has_its_class(name, expected):
    """One example of every rule, and names that look like one."""
    assert classify(name) == expected


def test_operators_by_name():
    """A string in a library that can call any operator."""
    names = ["aten::mm", "aten::select.int", "aten::empty_like", "prims::empty", "quantized::linear"]
    assert [classify_operator(n) for n in names] == ["compute", "tensor", "tensor", "compute", "compute"]


def test_overloads_of_torchs_headers_are_told_apart(real):
    """Of some 3,000 operators, exactly those whose base name is listed are harmless, under every overload."""
    pattern = r'struct TORCH_API (\w+) \{.*?name = "aten::(\w+)";'
    found = dict(
        pair
        for header in (real.torch_root / "include/ATen/ops").glob("*_ops.h")
        for pair in re.findall(pattern, header.read_text(), re.S)
    )
    assert len(found) > 2500
    assert {n for n, base in found.items() if is_tensor_op(n)} == {
        n for n, base in found.items() if base in TENSOR_OPS
    }


NAMES = {
    "memcpy": "memcpy",
    "_Z11fill_floatsPflf": "fill_floats",
    "_ZN2at4_ops2mm4callERKNS_6TensorES4_": "at::_ops::mm::call",
    "_ZNK2at10TensorBase8data_ptrIfEEPT_v": "at::TensorBase::data_ptr",
    "_ZN3c104cuda20getCurrentCUDAStreamEa": "c10::cuda::getCurrentCUDAStream",
    "_ZN5torch11CppFunctionD1Ev": "torch::CppFunction::~CppFunction",
    "_ZN5torch7LibraryC2ENS0_4KindENSt7__cxx1112basic_stringIcEE": "torch::Library::Library",
    "_ZTVN2at14TensorIteratorE": "at::TensorIterator",
    "_ZGVZN3foo3barEvE1x": "foo::bar",
    "_ZNSt6threadC1EOS_": "std::thread::thread",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateE": "std::thread::_M_start_thread",
    "_ZNO5torch7Library4_defEv": "torch::Library::_def",
    "_ZN12_GLOBAL__N_13runEv": "(anonymous)::run",
    "_ZL4filei": "file",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_a_mangled_name_says_what_it_belongs_to(symbol):
    """Namespaces, classes and the function; no arguments."""
    assert qualified(symbol) == NAMES[symbol]
