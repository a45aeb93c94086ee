#include "io/torch_pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/read_file.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::le;

struct ZipEntry {
  std::string name, data;
  uint16_t method = 0, flags = 0;
  std::string extra = {};  // of the local header, as torch pads data to 64 bytes
};

// A zip archive, entry by entry; `wide` writes every size and offset as zip64.
std::string zip(const std::vector<ZipEntry>& entries, bool wide = false, std::string_view comment = "") {
  std::string out, directory;
  for (const auto& entry : entries) {
    const auto size = static_cast<uint32_t>(entry.data.size());
    const auto offset = static_cast<uint64_t>(out.size());
    const uint32_t all = 0xFFFFFFFF;
    out += le<uint32_t>(0x04034b50) + le<uint16_t>(45) + le(entry.flags) + le(entry.method) + le<uint32_t>(0) + le<uint32_t>(0) +
           le(size) + le(size) + le<uint16_t>(static_cast<uint16_t>(entry.name.size())) +
           le<uint16_t>(static_cast<uint16_t>(entry.extra.size())) + entry.name + entry.extra + entry.data;
    const std::string extra =
        wide ? le<uint16_t>(1) + le<uint16_t>(24) + le<uint64_t>(size) + le<uint64_t>(size) + le<uint64_t>(offset) : "";
    directory += le<uint32_t>(0x02014b50) + le<uint16_t>(45) + le<uint16_t>(45) + le(entry.flags) + le(entry.method) +
                 le<uint32_t>(0) + le<uint32_t>(0) + le(wide ? all : size) + le(wide ? all : size) +
                 le<uint16_t>(static_cast<uint16_t>(entry.name.size())) + le<uint16_t>(static_cast<uint16_t>(extra.size())) +
                 le<uint16_t>(0) + le<uint32_t>(0) + le<uint32_t>(0) + le(wide ? all : static_cast<uint32_t>(offset)) +
                 entry.name + extra;
  }
  const auto at = static_cast<uint64_t>(out.size());
  out += directory;
  const auto count = static_cast<uint16_t>(entries.size());
  if (wide) {
    const auto end = static_cast<uint64_t>(out.size());
    out += le<uint32_t>(0x06064b50) + le<uint64_t>(44) + le<uint16_t>(45) + le<uint16_t>(45) + le<uint32_t>(0) + le<uint32_t>(0) +
           le<uint64_t>(count) + le<uint64_t>(count) + le<uint64_t>(directory.size()) + le(at);
    out += le<uint32_t>(0x07064b50) + le<uint32_t>(0) + le(end) + le<uint32_t>(1);
  }
  out += le<uint32_t>(0x06054b50) + le<uint16_t>(0) + le<uint16_t>(0) + le(count) + le(count) +
         le<uint32_t>(wide ? 0xFFFFFFFF : static_cast<uint32_t>(directory.size())) +
         le<uint32_t>(wide ? 0xFFFFFFFF : static_cast<uint32_t>(at)) + le<uint16_t>(static_cast<uint16_t>(comment.size())) +
         std::string(comment);
  return out;
}

// Pieces of a pickle.
const std::string kProto = std::string("\x80\x02", 2);
std::string text(std::string_view value) {
  return fmt::format("X{}{}", le<uint32_t>(static_cast<uint32_t>(value.size())), value);
}
std::string integer(int32_t value) { return fmt::format("J{}", le(value)); }
std::string global(std::string_view module, std::string_view name) { return fmt::format("c{}\n{}\n", module, name); }
std::string tuple(const std::vector<int>& values) {
  std::string out = "(";
  for (const int value : values) out += integer(value);
  return out + "t";
}
std::string storage(std::string_view type, std::string_view key, int count) {
  return fmt::format("({}{}{}{}{}tQ", text("storage"), global("torch", type), text(key), text("cpu"), integer(count));
}
std::string tensor(const std::string& source, int offset, const std::vector<int>& sizes, const std::vector<int>& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") + "(" + source + integer(offset) + tuple(sizes) + tuple(strides) + "\x89" +
         global("collections", "OrderedDict") + ")RtR";
}
std::string dictionary(const std::string& items) { return kProto + "}(" + items + "u."; }

std::string floats(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) out += le(value);
  return out;
}

std::string archive(const std::string& pickle, const std::string& data = floats({1, 2, 3, 4, 5, 6})) {
  return zip({{"m/data.pkl", pickle}, {"m/byteorder", "little"}, {"m/data/0", data, 0, 0, std::string("FB\x04\0ZZZZ", 8)}});
}

Result<std::vector<TorchTensor>> tensors_of(const std::string& file, const TorchLimits& limits = {}) {
  return parse_torch_tensors(bytes_of(file), "x.bin", nullptr, limits);
}
std::string refusal(const std::string& file, const TorchLimits& limits = {}) {
  const auto result = tensors_of(file, limits);
  return result.ok() ? "accepted" : result.status().message();
}

std::vector<float> values_of(const TorchTensor& tensor) {
  std::vector<float> out(tensor.view.shape.elements());
  std::memcpy(out.data(), tensor.view.data, out.size() * 4);
  return out;
}

TEST(TorchPickle, ReadsViewsOfStorages) {
  const std::string file = archive(dictionary(text("b") + tensor(storage("FloatStorage", "0", 6), 0, {2, 3}, {3, 1}) + text("a") +
                                              tensor(storage("FloatStorage", "0", 6), 4, {2}, {1})));
  const auto tensors = tensors_of(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_THAT(values_of((*tensors)[0]), ::testing::ElementsAre(5, 6));
  EXPECT_EQ((*tensors)[1].view.shape, Shape({2, 3}));
  EXPECT_THAT(values_of((*tensors)[1]), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_GE((*tensors)[1].view.data, reinterpret_cast<const std::byte*>(file.data()));  // not copied
}

TEST(TorchPickle, CopiesWhatDoesNotLieInARow) {
  const std::string file = archive(dictionary(text("t") + tensor(storage("FloatStorage", "0", 6), 0, {3, 2}, {1, 3}) + text("e") +
                                              tensor(storage("FloatStorage", "0", 6), 1, {2, 2}, {0, 2})));
  const auto tensors = tensors_of(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_THAT(values_of((*tensors)[0]), ::testing::ElementsAre(2, 4, 2, 4));
  EXPECT_THAT(values_of((*tensors)[1]), ::testing::ElementsAre(1, 4, 2, 5, 3, 6));
  TorchLimits limits;
  limits.max_copied_bytes = 20;
  EXPECT_THAT(refusal(file, limits), HasSubstr("strided"));
}

TEST(TorchPickle, KnowsTheFormsOfStateDicts) {
  const std::string one = tensor(storage("FloatStorage", "0", 6), 0, {6}, {1});
  const std::string parameter =
      global("torch._utils", "_rebuild_parameter") + "(" + one + "\x88" + global("collections", "OrderedDict") + ")RtR";
  EXPECT_EQ(refusal(archive(dictionary(text("p") + parameter))), "accepted");
  // OrderedDict with _metadata, memo slots, SETITEM, LONG1 and BINFLOAT.
  const std::string metadata = fmt::format("}}{}{})Rsb", text("_metadata"), global("collections", "OrderedDict"));
  EXPECT_EQ(refusal(archive(kProto + global("collections", "OrderedDict") + ")Rq\x01" + text("w") + "q\x02" + one + "s" +
                            metadata + ".")),
            "accepted");
  const std::string long_key = kProto + "}(" + text("w") + one + "u" + "q\x05" + "h\x05" + ".";
  EXPECT_EQ(refusal(archive(long_key)), "accepted");
  EXPECT_EQ(refusal(archive(dictionary(""))), "accepted");
}

TEST(TorchPickle, EveryStorageType) {
  const std::vector<std::pair<std::string, int>> types{
      {"FloatStorage", 4}, {"HalfStorage", 2},  {"BFloat16Storage", 2}, {"DoubleStorage", 8}, {"LongStorage", 8},
      {"IntStorage", 4},   {"ShortStorage", 2}, {"CharStorage", 1},     {"ByteStorage", 1},   {"BoolStorage", 1}};
  for (const auto& [type, width] : types) {
    const auto tensors =
        tensors_of(archive(dictionary(text("w") + tensor(storage(type, "0", 3), 0, {3}, {1})), std::string(3 * width, '\0')));
    ASSERT_TRUE(tensors.ok()) << type << tensors.status().message();
    EXPECT_EQ((*tensors)[0].view.size_bytes(), 3 * width);
  }
}

TEST(TorchPickle, NothingElseIsNamedOrCalled) {
  const std::string call = kProto + global("os", "system") + "(" + text("id") + "tR.";
  EXPECT_THAT(refusal(archive(call)), AllOf(HasSubstr("'os.system'"), HasSubstr("nothing was executed")));
  for (const auto& [module, name] : std::vector<std::pair<std::string, std::string>>{{"posix", "system"},
                                                                                     {"builtins", "eval"},
                                                                                     {"__builtin__", "getattr"},
                                                                                     {"torch", "load"},
                                                                                     {"torch._utils", "_rebuild_tensor_v3"},
                                                                                     {"torch.FloatStorage", ""},
                                                                                     {"collections.OrderedDict", ""}}) {
    EXPECT_THAT(refusal(archive(kProto + global(module, name) + ".")), HasSubstr("names '" + module)) << module;
  }
  EXPECT_THAT(refusal(archive(kProto + "cos\x1b[2J\nsystem\n.")), HasSubstr("os\\x1b[2J.system"));  // no terminal is driven
  EXPECT_THAT(refusal(archive(kProto + global("torch", "FloatStorage") + ")R.")), HasSubstr("no function"));
  EXPECT_THAT(refusal(archive(kProto + text("os.system") + ")R.")), HasSubstr("no function"));
  EXPECT_THAT(refusal(archive(kProto + "iposix\nsystem\n.")), HasSubstr("instruction 0x69"));                    // INST
  EXPECT_THAT(refusal(archive(kProto + "(" + text("x") + "o.")), HasSubstr("instruction 0x6f"));                 // OBJ
  EXPECT_THAT(refusal(archive(kProto + text("os") + text("system") + "\x93.")), HasSubstr("instruction 0x93"));  // STACK_GLOBAL
  EXPECT_THAT(refusal(archive(std::string("\x80\x04.", 3))), HasSubstr("protocol 4"));
}

TEST(TorchPickle, BrokenPickles) {
  const std::string one = tensor(storage("FloatStorage", "0", 6), 0, {6}, {1});
  EXPECT_THAT(refusal(archive("")), HasSubstr("an instruction"));
  EXPECT_THAT(refusal(archive(kProto + ".")), HasSubstr("nothing is on the stack"));
  EXPECT_THAT(refusal(archive(kProto + "(.")), HasSubstr("a mark"));
  EXPECT_THAT(refusal(archive(kProto + "t.")), HasSubstr("no mark"));
  EXPECT_THAT(refusal(archive(kProto + "h\x07.")), HasSubstr("never remembered"));
  EXPECT_THAT(refusal(archive(kProto + "]" + text("k") + text("v") + "s.")), HasSubstr("an entry of something else"));
  EXPECT_THAT(refusal(archive(kProto + "}(" + text("k") + "u.")), HasSubstr("a key without value"));
  EXPECT_THAT(refusal(archive(kProto + text("x") + ".")), HasSubstr("something else than a dictionary"));
  EXPECT_THAT(refusal(archive(dictionary(text("k") + integer(3)))), HasSubstr("'k' is no tensor"));
  EXPECT_THAT(refusal(archive(dictionary(integer(3) + one))), HasSubstr("no text"));
  EXPECT_THAT(refusal(archive(dictionary(text("k") + one + text("k") + one))), HasSubstr("stands in it twice"));
  EXPECT_THAT(refusal(archive(kProto + "X" + le<uint32_t>(0xFFFFFFFF) + "a.")), HasSubstr("a text"));
  EXPECT_THAT(refusal(archive(kProto + std::string("\x8a\x09", 2) + std::string(9, '\x01') + ".")), HasSubstr("64 bits"));
  // A dictionary inside itself ends nowhere, but nobody walks into it.
  EXPECT_THAT(refusal(archive(kProto + "}q\x01" + text("me") + "h\x01s.")), HasSubstr("'me' is no tensor"));
}

TEST(TorchPickle, TensorsStayInsideTheirStorages) {
  const auto one = [](const std::string& source, int offset, const std::vector<int>& sizes, const std::vector<int>& strides) {
    return refusal(archive(dictionary(text("w") + tensor(source, offset, sizes, strides))));
  };
  const std::string good = storage("FloatStorage", "0", 6);
  EXPECT_EQ(one(good, 0, {2, 3}, {3, 1}), "accepted");
  EXPECT_THAT(one(good, 1, {2, 3}, {3, 1}), HasSubstr("beyond its storage"));
  EXPECT_THAT(one(good, 0, {7}, {1}), HasSubstr("beyond its storage"));
  EXPECT_THAT(one(good, 0, {2}, {6}), HasSubstr("beyond its storage"));
  EXPECT_THAT(one(good, 0x7FFFFFFF, {1}, {1}), HasSubstr("beyond its storage"));
  EXPECT_THAT(one(good, -1, {1}, {1}), HasSubstr("something else than a storage"));
  EXPECT_THAT(one(good, 0, {2, -3}, {3, 1}), HasSubstr("something else than sizes"));
  EXPECT_THAT(one(good, 0, {0}, {1}), HasSubstr("is empty"));
  EXPECT_THAT(one(good, 0, {2, 3}, {3}), HasSubstr("as many strides"));
  EXPECT_THAT(one(good, 0, {1, 1, 1, 1, 2}, {1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
  EXPECT_THAT(one(good, 0, {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, {0, 0, 0}), HasSubstr("too large"));
  EXPECT_THAT(one(storage("FloatStorage", "0", 7), 0, {6}, {1}), HasSubstr("has 24 bytes, not 7 elements"));
  EXPECT_THAT(one(storage("HalfStorage", "0", 6), 0, {6}, {1}), HasSubstr("has 24 bytes"));
  EXPECT_THAT(one(storage("FloatStorage", "../../0", 6), 0, {6}, {1}), HasSubstr("not in the archive"));
  EXPECT_THAT(one(storage("Size", "0", 6), 0, {6}, {1}), HasSubstr("no storage"));
}

TEST(TorchPickle, ValuesAreBounded) {
  TorchLimits limits;
  limits.max_values = 100;
  EXPECT_THAT(refusal(archive(kProto + std::string(200, 'N') + "."), limits), HasSubstr("more than 100 values"));
  std::string recalled = kProto + "Nq\x01";
  for (int i = 0; i < 200; ++i) recalled += "h\x01";
  EXPECT_THAT(refusal(archive(recalled + "."), limits), HasSubstr("too deep"));
  // Doubling a list of lists stays cheap: lists hold references, and their items are counted.
  std::string doubled = kProto + "](NNNNNNNNe" + "q\x01";
  for (int i = 0; i < 60; ++i)
    doubled +=
        "](h\x01h\x01h\x01h\x01"
        "eq\x01";
  EXPECT_THAT(refusal(archive(doubled + "."), limits), HasSubstr("more than 100 values"));
  limits = {};
  limits.max_pickle_bytes = 10;
  EXPECT_THAT(refusal(archive(dictionary(text("a long name"))), limits), HasSubstr("10 are allowed"));
}

TEST(ZipDirectory, WithAndWithoutZip64) {
  for (const bool wide : {false, true}) {
    const std::string file = zip({{"a", "hello"}, {"b/c", ""}}, wide, "a comment");
    const auto parsed = ZipDirectory::parse(bytes_of(file), "z");
    ASSERT_TRUE(parsed.ok()) << wide << parsed.status().message();
    EXPECT_EQ(parsed->entries().size(), 2u);
    ASSERT_NE(parsed->find("a"), nullptr);
    EXPECT_EQ(parsed->find("a")->size(), 5u);
    EXPECT_EQ(static_cast<char>((*parsed->find("a"))[0]), 'h');
    EXPECT_EQ(parsed->find("x"), nullptr);
    // Cut short anywhere it is refused: the end record is last.
    for (size_t size = 0; size < file.size(); ++size) {
      const std::string part = file.substr(0, size);
      EXPECT_FALSE(ZipDirectory::parse(bytes_of(part), "z").ok()) << size;
    }
    // Any one byte changed is read without a fault, whatever comes out.
    for (size_t i = 0; i < file.size(); ++i) {
      std::string other = file;
      other[i] = static_cast<char>(other[i] ^ 0xFF);
      const auto result = ZipDirectory::parse(bytes_of(other), "z");
      if (result.ok()) {
        for (const auto& [name, bytes] : result->entries()) EXPECT_LE(bytes.size(), file.size());
      }
    }
  }
}

TEST(ZipDirectory, RefusesWhatTorchDoesNotWrite) {
  const auto says = [](const std::string& file) { return ZipDirectory::parse(bytes_of(file), "z").status().message(); };
  EXPECT_THAT(says(zip({{"a", "hello", 8}})), HasSubstr("'a' is compressed"));
  EXPECT_THAT(says(zip({{"a", "hello", 0, 1}})), HasSubstr("'a' is encrypted"));
  EXPECT_THAT(says(zip({{"a", "1"}, {"a", "2"}})), HasSubstr("twice"));
  EXPECT_THAT(says("PK"), HasSubstr("no zip archive"));
  std::string file = zip({{"a", "hello"}});
  file[0] = 'X';
  EXPECT_THAT(says(file), HasSubstr("does not begin where"));
  ZipLimits limits;
  limits.max_entries = 1;
  EXPECT_THAT(ZipDirectory::parse(bytes_of(file = zip({{"a", ""}, {"b", ""}})), "z", limits).status().message(),
              HasSubstr("1 are allowed"));
}

TEST(TorchPickle, FilesThatAreNoStateDict) {
  EXPECT_THAT(refusal(std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 9)), HasSubstr("before 1.6"));
  EXPECT_THAT(refusal("hello"), HasSubstr("no zip archive"));
  EXPECT_THAT(refusal(zip({{"a/b.txt", ""}})), HasSubstr("no data.pkl"));
  EXPECT_THAT(refusal(zip({{"m/data.pkl", dictionary("")}, {"m/byteorder", "big"}})), HasSubstr("'big'"));
  const choral::testing::TempDir folder;
  ReadMemory memory(0);
  auto file =
      read_file(folder.write("m.bin", archive(dictionary(text("w") + tensor(storage("FloatStorage", "0", 6), 0, {6}, {1})))),
                1 << 20, memory);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tensors = parse_torch_tensors((*file)->bytes(), (*file)->path(), *file);
  file = Status(Code::kInternal, "");
  ASSERT_TRUE(tensors.ok());
  EXPECT_THAT(values_of((*tensors)[0]), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));  // after the file object is gone
}

}  // namespace
}  // namespace choral::io
