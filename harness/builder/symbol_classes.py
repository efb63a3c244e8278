"""Names of functions in a library: demangling to a qualified name, and classification.

Of PyTorch's functions, those that are not known to be harmless compute: a new operator of a new release
counts as computing until it is listed here. The lists come from the exported symbols of torch 2.13.0 (CPU
and CUDA builds), its headers ATen/ops/*_ops.h, torch/csrc/stable/ and torch/csrc/inductor/aoti_torch/, and
the operators whose schema returns a view.
"""

from __future__ import annotations

import re
from typing import Final, Literal

_SPECIAL = re.compile(r"T[VTIS]|G[VR]|Th[n\d]+_|Tv[n\d]+_[n\d]+_")  # vtables, type info, guards, thunks
_STANDARD: Final = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_NUMBER = re.compile(r"L?(\d{1,5})")
_STRUCTOR = re.compile(r"C[123]|D[012]")
_MAX_PARTS: Final = 64


def qualified(symbol: str) -> str:
    """`_ZN2at4_ops2mm4callERKNS_6TensorES4_` -> `at::_ops::mm::call`, without any arguments.

    Names that are not mangled, or not understood, are returned unchanged.
    """
    if not symbol.startswith("_Z"):
        return symbol
    text = symbol[2:]
    special = _SPECIAL.match(text)
    text = text[special.end() :] if special else text
    # A local entity (`Z`) is named after its function.
    parts = _parts(re.sub(r"^Z*(N[rVKRO]*)?", "", text))
    return "::".join(parts) or symbol


def _parts(text: str) -> list[str]:
    parts: list[str] = []
    at = 0
    while len(parts) < _MAX_PARTS:
        number = _NUMBER.match(text, at)
        if number is not None:
            end = number.end() + int(number[1])
            name = text[number.end() : end]
            if len(name) != int(number[1]):
                break
            parts.append("(anonymous)" if name.startswith("_GLOBAL__N") else name)
            at = end
        elif text[at : at + 2] in _STANDARD and not parts:
            parts.append(_STANDARD[text[at : at + 2]])
            at += 2
        elif _STRUCTOR.match(text, at) and parts:
            tilde = "~" if text[at] == "D" else ""
            parts.append(tilde + parts[-1])
            break
        else:
            break
    return parts


def last_part(symbol: str) -> str:
    """The bare name of a function: `scale` for `demo::scale(int)` and for a C function."""
    return qualified(symbol).rpartition("::")[2]


Class = Literal["compute", "library", "dispatcher", "tensor", "runtime", "system"]

# Operators that allocate, inspect, move or fill memory, which every kernel's wrapper may need. Copies and
# casts are among them (`contiguous`, `to`, `copy_`), so a task that is itself a copy is not covered.
_TENSOR_OPS: Final = """
    _local_scalar_dense _reshape_alias _to_copy _unsafe_view _version adjoint alias as_strided as_strided_
    can_cast chunk clone conj contiguous copy_ cpu cuda data data_ptr detach detach_ diagonal dim dsplit
    empty empty_like empty_permuted empty_strided expand expand_as fill_ flatten full full_like hsplit imag
    is_complex is_contiguous is_floating_point is_leaf is_nonzero is_pinned is_same_size is_signed item lift
    lift_fresh mH mT matrix_H movedim moveaxis narrow new_empty new_empty_strided new_full new_ones
    new_zeros numel numpy_T ones ones_like output_nr permute pin_memory ravel real record_stream
    requires_grad_ reshape reshape_as resize_ resize_as_ resolve_conj resolve_neg result_type retain_grad
    scalar_tensor select set_ set_data size slice split split_with_sizes squeeze squeeze_ storage_offset
    stride swapaxes swapdims sym_numel sym_size sym_storage_offset sym_stride t t_ tensor_split to transpose
    transpose_ type_as unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze
    unsqueeze_ view view_as view_as_complex view_as_real vsplit zero_ zeros zeros_like
"""
TENSOR_OPS: Final = frozenset(_TENSOR_OPS.split())
# In C++ an overload's name is appended: at::_ops::select_int. These are the overloads of the above.
_OVERLOAD_NAMES: Final = """
    Scalar Scalar_Scalar Scalar_Tensor Tensor Tensor_out array device dim dims dtype dtype_layout indices int
    intlist memory_format other out sections sizes source_Storage source_Storage_storage_offset
    source_Tensor source_Tensor_storage_offset tensor_indices_or_sections using_ints
"""
_OVERLOADS: Final = frozenset(_OVERLOAD_NAMES.split())


def is_tensor_op(name: str) -> bool:
    """Whether an operator only allocates, inspects, moves or fills memory.

    `name` may include an overload: `select`, `select_int`, `fill__Scalar`.
    """
    name = name.replace("_symint", "")
    if name in TENSOR_OPS:
        return True
    cuts = (i for i, letter in enumerate(name) if letter == "_")
    return any(name[:i] in TENSOR_OPS and name[i + 1 :] in _OVERLOADS for i in cuts)


def classify(name: str) -> Class | None:
    """The class of a function by its qualified name; None for others, such as the C++ runtime."""
    if "::" in name:
        return _cxx_class(name.split("::"))
    for kind, pattern in _C_CLASSES:
        if pattern.match(name):
            return kind
    return _shim_class(name) if name.startswith(("aoti_torch_", "torch_")) else None


# BLAS and LAPACK, as torch's static MKL exports them: sgemm, sgemm_, SGEMM_64_, cblas_sgemm, ...
_BLAS: Final = (
    r"axpy|copy|swap|dot[uc]?|scal|nrm2|asum|tr(?:mm|sm|mv|sv|tri|trs|con)"
    r"|(?:ge|sy|he|po|or|un|gb|pb|gt|pt|hb|sb)[a-z0-9]{2,4}"
)
_C_CLASSES: Final[tuple[tuple[Class, re.Pattern[str]], ...]] = (
    (
        "dispatcher",
        re.compile(
            r"""(aoti_torch_call_dispatcher | torch_call_dispatcher | aoti_torch_proxy_executor_call_function
            | _?PyObject_(Call|Vectorcall|FastCall)\w* | PyVectorcall_Call | PyImport_\w+ | PyRun_\w+
            | Py_CompileString\w* | PyMarshal_Read\w+ | PyCFunction_Call | PyCapsule_Import
            | PyEval_(?!SaveThread|RestoreThread|AcquireThread|ReleaseThread|InitThreads)\w+)$""",
            re.X,
        ),
    ),
    (
        "library",
        re.compile(
            rf"""(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|cudss|nccl|pnccl|nvshmem|nvjpeg
            |npp[is]?|cufile|hipblas|rocblas|miopen)[A-Z_]\w* | torch_get_current_cuda_blas_handle$
            | (mkl|MKL|Dfti|dfti|dnnl|onednn|xnn|nnp|qnnp|pytorch_qnnp|openblas|bli|armpl)_?\w+
            | (cblas|LAPACKE|catlas)_\w+ | vm?[sdcz][A-Z]\w+ | vm?[sdcz][a-z0-9]{{2,9}}_(64_)?$
            | i?[sdcz][a-z][a-z0-9]{{2,9}}(_64)?_$ | gemm_(bf16|f16|s8|u8)\w+$
            | (?!cpow)i?[sdczSDCZ](?i:{_BLAS})(_\w*)?$""",
            re.X,
        ),
    ),
    (
        "system",
        re.compile(
            r"""(dlopen|dlmopen|dlsym|dlvsym|system|popen|fork|vfork|clone3?|exec[lv]\w*|fexecve
            |posix_spawnp?|ptrace|process_vm_(readv|writev)|syscall|prctl|personality|unshare|setns
            |socket(pair)?|connect|bind|listen|accept4?|send(to|msg|mmsg)?|recv(from|msg|mmsg)?|getaddrinfo
            |mmap(64)?|munmap|mremap|mprotect|memfd_create|shm_open|userfaultfd
            |(__)?open(at)?(64)?(_2)?|creat(64)?|f(d|re)?open(64)?|opendir|unlink(at)?|rename(at2?)?|symlink
            |kill|tgkill|pthread_kill|pthread_create|pthread_atfork|sched_setaffinity|setpriority|setrlimit
            |(bsd_)?signal|__sysv_signal|sigaction|setitimer|timer_create|alarm
            |uv_\w+|setenv|putenv|unsetenv|clearenv|clock_settime|clock_adjtime|settimeofday)$""",
            re.X,
        ),
    ),
    (
        "runtime",
        re.compile(r"cuda[A-Z]\w+|__cuda\w+|cu[A-Z]\w+|nvrtc[A-Z]\w+|nvml[A-Z]\w+|nvJitLink\w+|hip[A-Z]"),
    ),
)
_SHIM_RUNTIME: Final = re.compile(
    r".*(_stream(_|$)|_guard(_|$)|caching_allocator|current_device|torch_c10_cuda_)"
)
_SHIM_OPERATOR: Final = re.compile(r"aoti_torch_(?:cpu|cuda|mps|xpu|aten)_(.+?)(?:_v\d)?")
_SHIM_TENSOR: Final = re.compile(
    r"""aoti_torch_( abi_version | (get|is|dtype|device_type|layout|memory_format|delete|new|library|item
        |scalar_to_tensor|grad_mode|print|save)_\w+ | (int64|str|strlist|tensor)_to_ivalue
        | dtype | view_\w+
        | create_tensor_from_blob\w* | empty_strided\w* | as_strided | clone\w* | copy_ | tensor_copy_
        | assign_tensors\w* | _alloc_from_pool | _?reinterpret_tensor\w* | zero_ | check | warn
        | device_guard\w+ )
    | torch_( abi_version | (get|set|delete|list|new|string|tag|library|dtype|exception|generator|parse)_\w+
        | from_blob\w* | parallel_for | stream_native_handle )""",
    re.X,
)


def _shim_class(name: str) -> Class:
    """C functions of torch: the stable ABI and what compiled models call."""
    operator = _SHIM_OPERATOR.fullmatch(name)
    if _SHIM_RUNTIME.match(name):
        return "runtime"
    if operator is not None:
        return "tensor" if is_tensor_op(operator[1]) else "compute"
    return "tensor" if _SHIM_TENSOR.fullmatch(name) else "compute"


_LIBRARIES: Final = frozenset({"dnnl", "ideep", "fbgemm", "cudnn_frontend", "gloo", "tensorpipe", "c10d"})
# Namespaces in at:: whose members are operators.
_OPERATOR_NAMES: Final = """
    cpu meta redispatch functorch sparse_csr compositeexplicitautograd compositeimplicitautograd
    compositeexplicitautogradnonfunctional compositeimplicitautogradnestedtensor
"""
_OPERATOR_SPACES: Final = frozenset(_OPERATOR_NAMES.split())
_NATIVE_LIBRARY: Final = re.compile(r"cudnn|raw_cudnn|miopen|mkldnn|onednn|mkl_|cpublas|xnnpack|nnpack")
_NATIVE_HELPER: Final = re.compile(r"canUse32BitIndexMath|is_\w+|get_\w+|check\w+|toString")
_CUDA_LIBRARY: Final = re.compile(r"blas$|solver$|sparse$|getCurrentCUDA(Blas|Sparse|Solver)|getCUDABlasLt")
_CUDA_HELPER: Final = re.compile(
    r"warp_size|current_device|device_count|set_device|memcpy_and_sync|stream_synchronize"
    r"|philox|tunable|jit|get_\w+|set_\w+|is_\w+"
)
# Free functions of at:: in snake case that are no operators.
_AT_HELPER: Final = re.compile(
    r"(get|set|is|has|check|infer|assert|init|intraop|in|maybe|make|str2\w+|new|share|storage|print|launch"
    r"|geometry|from_blob|tensor|manual_seed|dl|record|show|collapse|expand|indexing)(_\w+)?|\w*2str"
)
_TORCH_COMPUTE: Final = frozenset({"nn", "optim", "lazy", "inductor", "nativert", "aot_inductor", "data"})
_JIT_CALLS: Final = re.compile(
    r"\w*Operators?\w*|load|compile|Module|Method|GraphExecutor|CompilationUnit|script|mobile|Code"
    r"|Interpreter\w*"
)
_STD_SYSTEM: Final = re.compile(r"thread|jthread|basic_(i|o)?fstream|basic_filebuf|filesystem|_?_?async\w*")


def _cxx_class(parts: list[str]) -> Class | None:
    rest = [*parts[1:], "", ""]
    match parts[0]:
        case "at":
            name = rest[2] if rest[:2] == ["cuda", "detail"] else rest[1]
            return _at_class(rest[0], name, lone=len(parts) == 2)
        case "torch":
            return _torch_class(rest[0], rest[1])
        case "c10":
            if rest[0] == "Dispatcher":
                # Registration goes through it too, by name of the library rather than of an operator.
                return "tensor" if rest[1].startswith(("register", "deregister")) else "dispatcher"
            return "runtime" if rest[0] == "cuda" else None
        case "std":
            return "system" if _STD_SYSTEM.fullmatch(rest[0]) else None
        case "pytorch_flash" | "PyTorchMemEffAttention" | "sdp" | "mslk":
            return "compute"
    return "library" if parts[0] in _LIBRARIES else None


def _operator(name: str) -> Class:
    return "tensor" if is_tensor_op(name) else "compute"


def _at_class(space: str, name: str, *, lone: bool) -> Class:
    """Of `at::space::name`, or of `at::space` when it stands alone."""
    if space in ("_ops", "Tensor") or space in _OPERATOR_SPACES:
        helper = (space == "cpu" and name.startswith("is_")) or name.lstrip("~") in ("", "Tensor")
        return "tensor" if helper else _operator(name)
    if space == "native":
        if _NATIVE_LIBRARY.match(name):
            return "library"
        return "tensor" if _NATIVE_HELPER.fullmatch(name) else "compute"
    if space == "cuda":
        if _CUDA_LIBRARY.match(name):
            return "library"
        helper = name != name.lower() or _CUDA_HELPER.fullmatch(name) is not None
        return "runtime" if helper else _operator(name)
    if lone and space == space.lower() and not _AT_HELPER.fullmatch(space):
        return _operator(space)
    return "tensor"


def _torch_class(space: str, name: str) -> Class:
    """Of `torch::space::name`."""
    if space in _TORCH_COMPUTE:
        return "compute"
    if space == "jit":
        return "dispatcher" if _JIT_CALLS.fullmatch(name) else "tensor"
    if space == "distributed":
        return "library"
    return "runtime" if space == "cuda" else "tensor"


# Namespaces in which torch 2.13 registers operators; a whole C string.
OPERATOR_NAME: Final = re.compile(
    rb"(?<![\w:.])(?:aten|prims?|quantized|_quantized|onednn|mkldnn|mkldnn_prepacked|mkl|inductor|sparse"
    rb"|symm_mem|c10d|_c10d_functional|rngprims|torchvision)::[A-Za-z_]\w{0,99}(?:\.\w{1,99})?(?=\0)"
)


def classify_operator(name: str) -> Class:
    """`aten::empty` allocates, `aten::mm` computes; so does everything outside `aten`."""
    space, _, operator = name.partition("::")
    known = space == "aten" and operator.partition(".")[0] in TENSOR_OPS
    return "tensor" if known else "compute"
