// Section `data` and the paths of its files.
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "common/config/job_sections.h"
#include "common/config/local_path.h"
#include "common/config/section_reader.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kMaxColumns = std::numeric_limits<int32_t>::max();  // Batch::columns are int32
constexpr int64_t kMaxBatchRows = int64_t{1} << 24;
constexpr int64_t kMaxParseThreads = 64;
constexpr int64_t kMaxBufferRows = int64_t{1} << 31;
constexpr int64_t kMaxEpochs = int64_t{1} << 40;  // a job adds up the epochs of its runs
constexpr size_t kMaxFiles = 100'000;

// Finds the files that the entries of `train` and `eval` name.
class FileFinder {
 public:
  FileFinder(const std::string& job_folder, const JobOptions& options)
      : folder_(options.data_root.empty() ? job_folder : options.data_root),
        hint_(options.data_root.empty()
                  ? "; relative paths start at the job file's directory, or give --data_root"
                  : absl::StrCat("; relative paths start at --data_root ", options.data_root)),
        check_(options.check_files) {}

  // All files that `value`, a path or a glob, names, in order.
  absl::StatusOr<std::vector<std::string>> Find(const ConfigNode& value,
                                                const std::string& path) const {
    if (value.kind != ConfigNode::Kind::kScalar || value.text.empty()) {
      return Unexpected(value, path, "a path or a glob");
    }
    RETURN_IF_ERROR(CheckLocalPath(absl::StrCat(value.where, ": ", path), value.text));
    const std::string full = Resolve(value.text);
    struct stat status;
    const bool is_glob = full.find_first_of("*?[") != std::string::npos;
    std::vector<std::string> files;
    if (is_glob && stat(full.c_str(), &status) != 0) {
      files = Expand(full);
      if (files.empty() && check_) {
        return InvalidArgument(value.where, ": ", path, ": no file matches ", full, hint_);
      }
    }
    // Also for a glob that need not match yet; the reader reports missing files later.
    if (files.empty()) files.push_back(full);
    for (const std::string& file : files) {
      if (!check_) break;
      const std::string why = WhyUnreadable(file);
      if (!why.empty()) {
        return InvalidArgument(value.where, ": ", path, ": ", file, ": ", why, hint_);
      }
    }
    return files;
  }

 private:
  std::string Resolve(const std::string& path) const {
    if (path[0] == '/' || folder_.empty()) return path;
    return absl::StrCat(folder_, folder_.back() == '/' ? "" : "/", path);
  }

  static std::vector<std::string> Expand(const std::string& pattern) {
    glob_t found = {};
    const absl::Cleanup free_found = [&] { globfree(&found); };
    if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) != 0) return {};
    std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    std::ranges::sort(files);
    return files;
  }

  static std::string WhyUnreadable(const std::string& file) {
    struct stat status;
    if (stat(file.c_str(), &status) != 0) return std::strerror(errno);
    if (S_ISDIR(status.st_mode)) return "is a directory; name the files in it, as in directory/*";
    if (!S_ISREG(status.st_mode)) {
      return "is a pipe or a device; a run reads its files several times: write it to a file";
    }
    if (access(file.c_str(), R_OK) != 0) return std::strerror(errno);
    return "";
  }

  const std::string folder_;
  const std::string hint_;
  const bool check_;
};

// Reads an entry of format idx: image files and their label files, paired in order.
absl::Status ReadImagePair(const ConfigNode& entry, const std::string& path,
                           const FileFinder& finder, std::vector<DataFile>* files) {
  std::vector<std::string> images, labels;
  const auto read_into = [&](std::vector<std::string>* out) {
    return [&finder, out](const ConfigNode& value, const std::string& at) -> absl::Status {
      ASSIGN_OR_RETURN(*out, finder.Find(value, at));
      return absl::OkStatus();
    };
  };
  RETURN_IF_ERROR(ReadSection(
      entry, path, {Custom("images", read_into(&images)), Custom("labels", read_into(&labels))}));
  if (images.empty() || images.size() != labels.size()) {
    return InvalidArgument(
        entry.where, ": ", path, ": ", images.size(), " image files and ", labels.size(),
        " label files; every image file needs a label file, as in {images: a.gz, labels: b.gz}");
  }
  for (size_t i = 0; i < images.size(); ++i) files->push_back({images[i], labels[i]});
  return absl::OkStatus();
}

absl::Status ReadFiles(const ConfigNode& value, const std::string& path, bool is_idx,
                       const FileFinder& finder, std::vector<DataFile>* files) {
  // A single file may be given without a list.
  const bool is_list = value.kind == ConfigNode::Kind::kList;
  if (value.kind == ConfigNode::Kind::kEmpty) return absl::OkStatus();
  const absl::Span<const ConfigNode> entries =
      is_list ? absl::MakeConstSpan(value.children) : absl::MakeConstSpan(&value, 1);
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string at = is_list ? absl::StrCat(path, "[", i, "]") : path;
    if (is_idx) {
      if (entries[i].kind != ConfigNode::Kind::kMap) {
        return Unexpected(entries[i], at, "an idx pair, as in {images: a.gz, labels: b.gz}");
      }
      RETURN_IF_ERROR(ReadImagePair(entries[i], at, finder, files));
    } else {
      ASSIGN_OR_RETURN(const std::vector<std::string> found, finder.Find(entries[i], at));
      for (const std::string& file : found) files->push_back({file, ""});
    }
    if (files->size() > kMaxFiles) {
      return InvalidArgument(value.where, ": ", path, ": more than ", kMaxFiles, " files");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadData(const ConfigNode& section, const std::string& path,
                      const std::string& job_folder, const JobOptions& options, DataConfig* data) {
  const auto later = [](const ConfigNode&, const std::string&) { return absl::OkStatus(); };
  RETURN_IF_ERROR(ReadSection(
      section, path,
      {Choice("format", &data->format,
              {"libsvm", "criteo_tsv", "criteo_csv", "csv", "idx", "text", "movielens"}),
       // Read below, because the form of an entry depends on the format.
       Custom("train", later), Custom("eval", later),
       Integer("features", &data->features, 0, kMaxColumns),
       Integer("index_base", &data->index_base, 0, kMaxColumns),
       Integer("label_base", &data->label_base, -kMaxColumns, kMaxColumns),
       Integer("label_column", &data->label_column, 0, kMaxColumns),
       Integer("batch_size", &data->batch_size, 1, kMaxBatchRows),
       Integer("epochs", &data->epochs, 1, kMaxEpochs), Integer("max_steps", &data->max_steps, 0),
       Boolean("drop_remainder", &data->drop_remainder),
       Section("shuffle", {Integer("buffer_rows", &data->shuffle_buffer_rows, 0, kMaxBufferRows),
                           Integer("seed", &data->shuffle_seed, 0)}),
       Integer("parse_threads", &data->parse_threads, 0, kMaxParseThreads),
       Choice("auto_shard", &data->auto_shard, {"auto", "file", "data", "off"})}));
  const FileFinder finder(job_folder, options);
  for (auto [key, files] : {std::pair{"train", &data->train}, std::pair{"eval", &data->eval}}) {
    const ConfigNode* value = section.Find(key);
    if (value == nullptr) continue;
    RETURN_IF_ERROR(
        ReadFiles(*value, absl::StrCat(path, ".", key), data->format == "idx", finder, files));
  }
  return absl::OkStatus();
}

absl::Status FinishData(const ConfigNode& root, JobConfig* job) {
  const DataConfig& data = job->data;
  if (data.format.empty()) {
    return JobError(root, "data.format",
                    "is missing; expected one of: libsvm, criteo_tsv, criteo_csv, csv, idx, text, "
                    "movielens");
  }
  if (data.train.empty() && data.eval.empty()) {
    return JobError(root, "data.train", "names no file; give at least one");
  }
  // Labels are float32.
  constexpr int64_t kEndOfExact = 1 << 24;
  if (job->model.loss == "softmax_cross_entropy" &&
      std::abs(data.label_base) + job->model.classes > kEndOfExact) {
    return JobError(root, "data.label_base",
                    absl::StrCat("is ", data.label_base, ", and model.classes ", job->model.classes,
                                 "; labels are float32 numbers, of which those from ", kEndOfExact,
                                 " on may be equal: number the classes from 0"));
  }
  if (data.format == "libsvm" && data.features == 0) {
    return JobError(root, "data.features",
                    "is missing; libsvm needs the number of columns, as in features: 123");
  }
  return absl::OkStatus();
}

}  // namespace cairn
