// Predicts with an exported operator, without Python:
//     g++ -std=c++17 -I$ORT/include operator.cpp -L$ORT/lib -lonnxruntime -o operator
//     ./operator operator.onnx 1000 mesh_points.bin features.bin > values.bin
// Each file holds the float32 numbers of one input, in the order of the signature.
// Prints the field. For operators exported without --batched.
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>
static const OrtApi *api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
static void check(OrtStatus *status) {
  if (status) std::exit((std::fprintf(stderr, "%s\n", api->GetErrorMessage(status)), 1));
}

int main(int argc, char **argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: operator FILE POINTS INPUT...\n"), 2;
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtAllocator *allocator;
  OrtMemoryInfo *memory;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "operator", &env));
  check(api->CreateSessionOptions(&options));
  check(api->CreateSession(env, argv[1], options, &session));
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  std::vector<std::vector<char>> arrays(argc - 3);
  std::vector<char *> names(argc - 3);
  std::vector<OrtValue *> inputs(argc - 3);
  for (int i = 0; i < argc - 3; ++i) {
    std::ifstream file(argv[i + 3], std::ios::binary);
    arrays[i].assign(std::istreambuf_iterator<char>(file), {});
    OrtTypeInfo *type;
    const OrtTensorTypeAndShapeInfo *tensor;
    size_t rank, bytes = arrays[i].size();
    int64_t shape[3];
    check(api->SessionGetInputName(session, i, allocator, &names[i]));
    check(api->SessionGetInputTypeInfo(session, i, &type));
    check(api->CastTypeInfoToTensorInfo(type, &tensor));
    check(api->GetDimensionsCount(tensor, &rank));
    check(api->GetDimensions(tensor, shape, rank));
    std::replace(shape, shape + rank, int64_t{-1}, int64_t{std::atoll(argv[2])});
    check(api->CreateTensorWithDataAsOrtValue(memory, arrays[i].data(), bytes, shape, rank,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[i]));
  }
  const char *output = "values";
  OrtValue *found = nullptr;
  check(api->Run(session, nullptr, names.data(), inputs.data(), inputs.size(), &output, 1, &found));
  OrtTensorTypeAndShapeInfo *info;
  size_t count;
  void *values;
  check(api->GetTensorTypeAndShape(found, &info));
  check(api->GetTensorShapeElementCount(info, &count));
  check(api->GetTensorMutableData(found, &values));
  std::fwrite(values, 4, count, stdout);
}
