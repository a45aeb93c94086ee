// The C interface of libtvm_ffi 0.1.15 and 0.1.16 as far as xgrammar's binding needs it: layouts and functions, written down here
// so that neither headers nor a Python are needed to build. They hold for these versions only; xgrammar_library.cc refuses
// others. A function gives 0, or not 0 and an error to fetch. Objects are counted; a value that holds one is released by its
// owner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace choral::text::tvm_ffi {

enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kTensorPointer = 7,
  kSmallText = 11,
  kFirstObject = 64,  // from here on a value holds a counted object
  kText = 65,
  kFunction = 68,
};

struct Object {  // the head of every object; what it holds stands behind
  uint64_t references;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};
static_assert(sizeof(Object) == 24);

struct Any {
  int32_t type_index = kNone;
  uint32_t small_size = 0;  // of a short text that stands in the value itself
  union {
    int64_t integer = 0;
    void* pointer;
    Object* object;
    char bytes[8];
  };
};
static_assert(sizeof(Any) == 16 && offsetof(Any, integer) == 8);

struct Bytes {
  const char* data;
  size_t size;
};

struct Text {
  Object head;
  Bytes bytes;
};
static_assert(offsetof(Text, bytes) == 24);

struct Error {
  Object head;
  Bytes kind, message;  // and more
};
static_assert(offsetof(Error, kind) == 24);

struct Method {
  Bytes name, documentation, metadata;
  int64_t flags;
  Any function;
};
static_assert(sizeof(Method) == 72);

struct TypeInfo {
  int32_t type_index, depth;
  Bytes key;
  const TypeInfo** ancestors;
  uint64_t key_hash;
  int32_t field_count, method_count;
  const void* fields;
  const Method* methods;
  const void* metadata;
};
static_assert(sizeof(TypeInfo) == 72 && offsetof(TypeInfo, methods) == 56);

struct Version {
  uint32_t major, minor, patch;

  bool operator==(const Version&) const = default;
};

// Whose C interfaces are the same. The wheel 0.1.15.post2 holds 0.1.16.
constexpr Version kKnown[] = {{0, 1, 15}, {0, 1, 16}};

// DLPack's view of memory.
struct Tensor {
  void* data;
  int32_t device_type, device_id;  // 1: the CPU
  int32_t dimensions;
  uint8_t type_code, type_bits;  // 0: signed integers
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // null: dense
  uint64_t byte_offset;
};
static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24);

// Exported as TVMFFI<name>.
struct Functions {
  void (*GetVersion)(Version* out);
  int (*ObjectDecRef)(void* object);
  int (*TypeKeyToIndex)(const Bytes* key, int32_t* out);
  const TypeInfo* (*GetTypeInfo)(int32_t type_index);
  int (*FunctionGetGlobal)(const Bytes* name, void** out);
  int (*FunctionCall)(void* function, Any* arguments, int32_t count, Any* result);
  void (*ErrorMoveFromRaised)(void** out);
  int (*StringFromByteArray)(const Bytes* text, Any* out);
  int (*BytesFromByteArray)(const Bytes* bytes, Any* out);
};

}  // namespace choral::text::tvm_ffi
