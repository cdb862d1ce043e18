"""A stand-in for `onnxruntime_c_api.h`, which no package that installs here contains.

ONNX Runtime's C API is a table of function pointers whose places never change. This
declares those that `docs/how-to/operator.cpp` calls.
"""

_PLACES = {
    2: "const char *(*GetErrorMessage)(const OrtStatus *)",
    3: "OrtStatus *(*CreateEnv)(int, const char *, OrtEnv **)",
    7: "OrtStatus *(*CreateSession)(const OrtEnv *, const char *, "
    "const OrtSessionOptions *, OrtSession **)",
    9: "OrtStatus *(*Run)(OrtSession *, const void *, const char *const *, "
    "const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **)",
    10: "OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **)",
    33: "OrtStatus *(*SessionGetInputTypeInfo)(const OrtSession *, size_t, "
    "OrtTypeInfo **)",
    36: "OrtStatus *(*SessionGetInputName)(const OrtSession *, size_t, OrtAllocator *, "
    "char **)",
    49: "OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *, "
    "size_t, const int64_t *, size_t, int, OrtValue **)",
    51: "OrtStatus *(*GetTensorMutableData)(OrtValue *, void **)",
    55: "OrtStatus *(*CastTypeInfoToTensorInfo)(const OrtTypeInfo *, "
    "const OrtTensorTypeAndShapeInfo **)",
    61: "OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *, size_t *)",
    62: "OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *, int64_t *, "
    "size_t)",
    64: "OrtStatus *(*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *, "
    "size_t *)",
    65: "OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *, "
    "OrtTensorTypeAndShapeInfo **)",
    69: "OrtStatus *(*CreateCpuMemoryInfo)(int, int, OrtMemoryInfo **)",
    78: "OrtStatus *(*GetAllocatorWithDefaultOptions)(OrtAllocator **)",
}
_TYPES = (
    "Allocator Env MemoryInfo Session SessionOptions Status TensorTypeAndShapeInfo "
    "TypeInfo Value"
)
_NUMBERS = {
    "ORT_LOGGING_LEVEL_ERROR": 3,
    "OrtArenaAllocator": 1,
    "OrtMemTypeDefault": 0,
    "ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT": 1,
    "ORT_API_VERSION": 13,
}


def text() -> str:
    """Returns the header."""
    table = [_PLACES.get(i, f"void *other{i}") for i in range(max(_PLACES) + 1)]
    return "\n".join(
        [
            "#include <cstddef>",
            "#include <cstdint>",
            *(f"struct Ort{name};" for name in _TYPES.split()),
            *(f"constexpr int {name} = {value};" for name, value in _NUMBERS.items()),
            "struct OrtApi {",
            *(f"  {entry};" for entry in table),
            "};",
            "struct OrtApiBase { const OrtApi *(*GetApi)(uint32_t); };",
            'extern "C" const OrtApiBase *OrtGetApiBase();',
        ]
    )
