// Manifests of checkpoints and .safetensors files.
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/hash.h"
#include "nlohmann/json.hpp"
#include "tests/file_fuzz/target.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"
#include "worker/trainer/files/safetensors_reader.h"

namespace cairn::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTrainerBytes = 32 << 10;

CheckpointManifest Example() {
  CheckpointManifest manifest;
  manifest.job = "a9a";
  manifest.name = "a9a-000003";
  manifest.number = 3;
  manifest.step = 200;
  manifest.made = "2030-01-31T12:34:56Z";
  manifest.seconds = 0.5;
  ServerCheckpoint server;
  server.folder = "/checkpoints/a9a-000003/ps0";
  server.host = "host";
  server.files = {{"values.sst", 1234, 0x0123456789abcdef}, {"CURRENT", 16, 7}};
  server.workers = {{.worker = 0, .incarnation = 1, .sequence = 200, .position = "position"}};
  manifest.servers.push_back(server);
  server.server = 1;
  manifest.servers.push_back(server);
  return manifest;
}

// Replaces a value somewhere in the tree by another of the same or another type.
void ChangeNode(Dice& dice, Json* node) {
  while (node->is_structured() && !node->empty() && !dice.OneIn(4)) {
    auto child = node->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(dice.Below(node->size())));
    if (dice.OneIn(16)) {
      node->erase(child);
      return;
    }
    node = &*child;
  }
  switch (dice.Below(7)) {
    case 0: *node = ExtremeInteger(dice); return;
    case 1: *node = ExtremeNumber(dice); return;
    case 2: *node = dice.Of(ExtremeTexts()); return;
    case 3: *node = nullptr; return;
    case 4: *node = Json::array(); return;
    case 5: *node = Json::array({*node, *node}); return;
    default: *node = Json{{"server", *node}};
  }
}

class ManifestTarget : public FuzzTarget {
 public:
  ManifestTarget() {
    Example().WriteTo(folder_.path()).IgnoreError();
    seeds_ = {FileText(folder_.Join(CheckpointManifest::kFileName))};
  }

  std::string Make(Dice& dice) override {
    std::string text = seeds_[0];
    if (dice.OneIn(4)) {
      Mutate(dice, seeds_, {"\"servers\"", "\"checksum\"", "[", "]", "{", "}", ","},
             kMaxTrainerBytes, &text);
      return text;
    }
    Json json = Json::parse(text);
    json.erase("checksum");
    for (size_t i = 0, changes = 1 + dice.Below(3); i < changes; ++i) ChangeNode(dice, &json);
    const auto replace = Json::error_handler_t::replace;
    const std::string body = json.dump(-1, ' ', false, replace);
    const Json clean = Json::parse(body, nullptr, false);
    if (!clean.is_object()) return body;
    json = clean;
    json["checksum"] = absl::StrFormat("%016x", HashBytes(clean.dump()));
    return json.dump(1);
  }

  std::string Try(const std::string& input) override {
    const std::string path = folder_.Join(CheckpointManifest::kFileName);
    std::ofstream(path, std::ios::binary) << input;
    const absl::StatusOr<CheckpointManifest> read = CheckpointManifest::ReadFrom(folder_.path());
    if (!read.ok()) {
      if (!absl::IsDataLoss(read.status()) && !absl::IsFailedPrecondition(read.status())) {
        return absl::StrCat("refused as ", read.status().ToString());
      }
      return WrongWithMessage(std::string(read.status().message()), folder_.path());
    }
    if (const absl::Status status = read->WriteTo(other_.path()); !status.ok()) {
      return absl::StrCat("read and not written: ", status.ToString());
    }
    const absl::StatusOr<CheckpointManifest> again = CheckpointManifest::ReadFrom(other_.path());
    if (!again.ok()) return absl::StrCat("written and refused: ", again.status().ToString());
    return Same(*read, *again) ? "" : "written and read as another manifest";
  }
  int64_t runs_of_a_test() const override { return 1000; }

 private:
  static bool Same(const CheckpointManifest& a, const CheckpointManifest& b) {
    const auto facts = [](const CheckpointManifest& m) {
      return std::tie(m.job, m.name, m.number, m.step, m.finished, m.timeline, m.made, m.seconds);
    };
    if (facts(a) != facts(b) || a.servers.size() != b.servers.size()) return false;
    for (size_t i = 0; i < a.servers.size(); ++i) {
      const ServerCheckpoint& x = a.servers[i];
      const ServerCheckpoint& y = b.servers[i];
      if (std::tie(x.server, x.folder, x.host, x.files, x.workers) !=
          std::tie(y.server, y.folder, y.host, y.files, y.workers)) {
        return false;
      }
    }
    return true;
  }

  const TempDir folder_;
  const TempDir other_;
  std::vector<std::string> seeds_;
};

class SafetensorsTarget : public FuzzTarget {
 public:
  std::string Make(Dice& dice) override {
    std::string header = dice.Of(headers_);
    if (dice.OneIn(2)) Mutate(dice, headers_, words_, kMaxTrainerBytes, &header);
    std::string file(8, '\0');
    const uint64_t size =
        dice.OneIn(8) ? static_cast<uint64_t>(ExtremeInteger(dice)) : header.size();
    for (int i = 0; i < 8; ++i) file[static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
    file += header + std::string(dice.OneIn(4) ? dice.Below(100) : 40, '\1');
    if (dice.OneIn(4)) Mutate(dice, headers_, words_, kMaxTrainerBytes, &file);
    return file;
  }

  std::string Try(const std::string& input) override {
    const std::string path = folder_.Join("x.safetensors");
    std::ofstream(path, std::ios::binary) << input;
    const auto reader = SafetensorsReader::Open(path);
    if (!reader.ok()) {
      return WrongWithMessage(std::string(reader.status().message()), folder_.path());
    }
    for (const auto& [name, array] : (*reader)->arrays()) {
      if (array.bytes > input.size()) return absl::StrCat(array.bytes, " bytes in array ", name);
      std::vector<std::byte> bytes(array.bytes);
      if (const absl::Status status = (*reader)->Read(array, absl::MakeSpan(bytes)); !status.ok()) {
        return absl::StrCat("an array of a whole file is not read: ", status.ToString());
      }
      (*reader)->Find(name + "x", DType::kFloat32, {1}).status().IgnoreError();
    }
    return "";
  }
  int64_t runs_of_a_test() const override { return 6000; }

 private:
  const std::vector<std::string> headers_ = {
      R"({"__metadata__":{"by":"x"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("y":{"dtype":"I64","shape":[],"data_offsets":[24,32]},)"
      R"("z":{"dtype":"BF16","shape":[0,4],"data_offsets":[32,32]},)"
      R"("n":{"dtype":"U8","shape":[4,2],"data_offsets":[32,40]}})",
      R"({"x":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}})", "{}"};
  const std::vector<std::string> words_ = {"\"F32\"",
                                           "\"BOOL\"",
                                           "\"F8_E4M3\"",
                                           "[0,0]",
                                           "[0,8]",
                                           "[8,0]",
                                           "\"x\":",
                                           "{",
                                           "}",
                                           ",",
                                           "[4294967296,4294967296]"};
  const TempDir folder_;
};

}  // namespace

std::vector<NamedTarget> TrainerTargets() {
  return {{"manifest", [] { return std::make_unique<ManifestTarget>(); }},
          {"safetensors", [] { return std::make_unique<SafetensorsTarget>(); }}};
}

}  // namespace cairn::test
