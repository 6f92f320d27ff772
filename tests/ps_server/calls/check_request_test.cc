// Requests beyond a limit, or with unusable fields, are rejected.
#include "ps_server/calls/check_request.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/thrift/examples.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// The refusal of `request` after `change` modified it.
template <typename Request, typename Change>
absl::Status After(Request request, Change change) {
  change(request);
  return CheckRequest(request);
}

TEST(CheckRequest, ExamplesPass) {
  EXPECT_OK(CheckRequest(ExampleHello()));
  EXPECT_OK(CheckRequest(ExampleCaller()));
  EXPECT_OK(CheckRequest({ExampleDenseSpec(), ExampleEmbeddingSpec()}));
  EXPECT_OK(CheckRequest(ExamplePush()));
  EXPECT_OK(CheckRequest(ExampleAssign()));
  EXPECT_OK(CheckRequest(ExamplePull()));
  EXPECT_OK(CheckRequest(ExampleStep()));
  EXPECT_OK(CheckRequest(ExampleDescribe()));
  EXPECT_OK(CheckRequest(ExampleScan()));
}

TEST(CheckRequest, EachLimitIsNamed) {
  const auto limit = [](const absl::Status& status, const std::string& name) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(name)));
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::LIMIT) << name;
  };
  limit(After(ExampleHello(), [](auto& r) { r.job.assign(257, 'j'); }), "kMaxJobNameBytes");
  limit(After(ExampleHello(), [](auto& r) { r.task_type.assign(65, 't'); }), "kMaxTaskTypeBytes");
  limit(After(ExampleHello(), [](auto& r) { r.host_id.assign(257, 'h'); }), "host_id");
  limit(After(ExampleHello(), [](auto& r) { r.origin.assign(257, 'o'); }), "kMaxOriginBytes");
  limit(
      After(ExamplePush(), [](auto& r) { r.sequence.position.assign(kMaxPositionBytes + 1, 'p'); }),
      "kMaxPositionBytes");
  limit(After(ExamplePush(), [](auto& r) { r.items[1].variable.assign(513, 'v'); }),
        "items[1]: field variable has 513 bytes; at most 512 are allowed (kMaxVariableNameBytes)");
  limit(After(ExamplePush(), [](auto& r) { r.items.resize(kMaxItemsPerCall + 1, r.items[0]); }),
        "kMaxItemsPerCall");
  limit(After(ExamplePull(), [](auto& r) { r.items[1].slot.assign(65, 's'); }),
        "kMaxSlotNameBytes");
  limit(After(ExampleScan(), [](auto& r) { r.max_rows = kMaxScanRows + 1; }), "kMaxScanRows");
  for (auto servers : {&wire::WorkerVitals::servers_gone, &wire::WorkerVitals::servers_replaced}) {
    limit(After(ExampleCaller(),
                [servers](auto& r) {
                  r.__set_vitals({});
                  (r.vitals.*servers).resize(kMaxGoneServers + 1);
                }),
          "kMaxGoneServers");
  }
  // The count includes all items; the bytes are not read.
  limit(After(ExamplePull(),
              [](auto& r) {
                r.items[1].ids = Payload::View("", (kMaxIdsPerCall / 2 + 1) * sizeof(int64_t));
                r.items.push_back(r.items[1]);
              }),
        "items[2]: field ids has 16777218 entries, items together");
}

// Text that reaches logs and terminals, and paths, which a zero byte would cut off.
TEST(CheckRequest, ControlCharactersAreNamed) {
  const auto refused = [](const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(After(ExampleHello(), [](auto& r) { r.task_type = "w\nE2026 forged"; }),
          "field task_type has the control character \\x0a");
  refused(After(ExampleHello(), [](auto& r) { r.origin = "host\x1b[2J/1"; }),
          "field origin has the control character \\x1b");
  refused(After(ExampleHello(), [](auto& r) { r.host_id = std::string("a\0b", 3); }),
          "field host_id has the control character \\x00");
  refused(After(ExampleCaller(),
                [](auto& r) {
                  r.__set_vitals({});
                  r.vitals.task = "\xc2\x9b";
                }),
          "field vitals.task has the control character \\xc2\\x9b");
  wire::CheckpointRequest checkpoint;
  checkpoint.caller = ExampleCaller();
  checkpoint.directory = "/models";
  checkpoint.name = "a";
  EXPECT_OK(CheckRequest(checkpoint));
  refused(After(checkpoint, [](auto& r) { r.directory = std::string("/models\0x", 9); }),
          "field directory has the control character \\x00");
  refused(After(ExamplePush(),
                [](auto& r) {
                  r.decisions.resize(2);
                  r.decisions[0].step = kMaxStep;
                  r.decisions[1].step = 5;
                }),
          "field decisions.step is 5 after 4611686018427387904; steps ascend");
  wire::RestoreRequest restore;
  restore.caller = ExampleCaller();
  restore.folders.resize(1);
  restore.folders[0].path = "/models";
  restore.folders[0].files.resize(1);
  EXPECT_OK(CheckRequest(restore));
  refused(After(restore, [](auto& r) { r.folders[0].path += "\n"; }),
          "field path has the control character \\x0a");
  refused(After(restore, [](auto& r) { r.folders[0].files[0].name = std::string("a\0b", 3); }),
          "field files.name has the control character \\x00");
  refused(After(restore, [](auto& r) { r.folders[0].files[0].bytes = -1; }),
          "field files.bytes is -1");
}

TEST(CheckRequest, FieldsNoServerCouldUseAreNamed) {
  const auto refused = [](const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(text)));
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::NONE) << text;
  };
  refused(After(ExampleHello(), [](auto& r) { r.job = ""; }), "field job is empty");
  refused(After(ExampleHello(), [](auto& r) { r.job = "a/b"; }), "field job has the byte 47");
  refused(After(ExampleHello(), [](auto& r) { r.worker = -2; }), "field worker is -2");
  refused(After(ExampleHello(), [](auto& r) { r.incarnation = -1; }), "field incarnation is -1");
  refused(After(ExampleHello(), [](auto& r) { r.step = -2; }), "field step is -2");
  refused(After(ExampleHello(), [](auto& r) { r.expected_workers = -1; }),
          "field expected_workers is -1");
  refused(After(ExampleAssign(), [](auto& r) { r.items[0].__set_updates(-1); }),
          "items[0]: field updates is -1");
  refused(After(ExampleAssign(), [](auto& r) { r.items[0].__set_updates(kMaxStep + 1); }),
          "items[0]: field updates is 4611686018427387905");
  refused(After(ExampleAssign(),
                [](auto& r) {
                  r.caller.worker = 0;
                  r.__set_together(true);
                }),
          "items[0]: field selection is 2; with together it is 1 (WHOLE)");
  refused(After(ExampleAssign(),
                [](auto& r) {
                  r.caller.worker = -1;
                  r.__set_together(true);
                }),
          "field together is for workers");
  refused(After(ExamplePull(), [](auto& r) { r.step = -2; }), "field step is -2");
  refused(After(ExamplePull(), [](auto& r) { r.wait_seconds = 0; }), "field wait_seconds is 0");
  refused(After(ExamplePull(), [](auto& r) { r.wait_seconds = kMaxWaitSeconds + 1; }),
          "field wait_seconds is 61; it is above 0 and at most 60 (kMaxWaitSeconds)");
  refused(After(ExampleCaller(), [](auto& r) { r.boot_id = -1; }), "caller.boot_id is -1");
  refused(After(ExampleCaller(), [](auto& r) { r.through = -5; }), "caller.through is -5");
  refused(After(ExamplePush(), [](auto& r) { r.sequence.after = -1; }), "sequence.after is -1");
  refused(After(ExamplePush(), [](auto& r) { r.items[0].variable = "a\n"; }),
          "items[0]: field variable has the byte 10");
  refused(After(ExamplePush(), [](auto& r) { r.items[0].shard = -1; }), "field shard is -1");
  refused(After(ExamplePush(),
                [](auto& r) { r.items[0].selection = static_cast<wire::Selection::type>(9); }),
          "field selection is 9");
  refused(
      After(ExamplePush(), [](auto& r) { r.items[0].dtype = static_cast<wire::DType::type>(0); }),
      "field dtype is 0");
  refused(After(ExamplePush(), [](auto& r) { r.items[0].ids = Payload::Copy("12345678", 8); }),
          "field ids has 8 bytes; with selection WHOLE there are none");
  refused(After(ExamplePush(), [](auto& r) { r.items[1].ids = Payload::Copy("1234567", 7); }),
          "field ids has 7 bytes, no multiple of 8");
  const auto held = [](auto change) {
    return After(ExamplePull(), [&](auto& r) {
      r.items.resize(1);
      r.items[0].selection = wire::Selection::WHOLE;
      r.items[0].ids = {};
      r.items[0].slot = "";
      r.items[0].__set_held({});
      change(r.items[0]);
    });
  };
  EXPECT_OK(held([](auto&) {}));
  refused(held([](auto& item) { item.held.boot_id = -1; }), "field held.boot_id is -1");
  refused(held([](auto& item) { item.held.mark = -2; }), "field held.mark is -2");
  refused(held([](auto& item) { item.selection = wire::Selection::ROWS; }),
          "field held is for selection WHOLE (1) of the value, found selection 2: leave it out");
  refused(held([](auto& item) { item.slot = "momentum"; }), "found slot \"momentum\"");
  refused(After(ExampleScan(), [](auto& r) { r.max_rows = 0; }), "field max_rows is 0");
  refused(After(ExampleDescribe(), [](auto& r) { r.variables[0] = ""; }), "variables is empty");
  wire::VariableSpec unnamed = ExampleDenseSpec();
  unnamed.name = "";
  refused(CheckRequest({ExampleEmbeddingSpec(), unnamed}), "field specs[1].name is empty");
}

// Otherwise a small request could ask for a reply without bounds.
TEST(CheckRequest, ADescribeNamesAVariableOnce) {
  const auto named = [](std::vector<std::string> names) {
    return After(ExampleDescribe(), [&](auto& r) { r.variables = std::move(names); });
  };
  EXPECT_OK(named({"b", "a"}));
  EXPECT_THAT(named({"b", "a", "b"}),
              StatusIs(kInvalid, HasSubstr("field variables names \"b\" twice; each variable is "
                                           "named once at most")));
}

// Both halves of a step are checked.
TEST(CheckRequest, AStepIsAPushAndAPull) {
  const auto refused = [](const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(After(ExampleStep(), [](auto& r) { r.push.caller.job = ""; }),
          "field caller.job is empty");
  refused(After(ExampleStep(), [](auto& r) { r.pull.items[0].shard = -1; }), "field shard is -1");
}

// Servers calculate with these numbers: sums of rows, the incarnation after the known one.
TEST(CheckRequest, NumbersThatCouldOverflowAreRefused) {
  const auto refused = [](const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(After(ExampleHello(), [](auto& r) { r.incarnation = kMaxIncarnation + 1; }),
          "field incarnation is 9223372032559808513; 0 to 9223372032559808512 (kMaxIncarnation)");
  refused(After(ExampleCaller(), [](auto& r) { r.incarnation = kMaxIncarnation + 1; }),
          "kMaxIncarnation");
  EXPECT_OK(After(ExamplePush(), [](auto& r) { r.rows = kMaxContributionRows; }));
  refused(After(ExamplePush(), [](auto& r) { r.rows = kMaxContributionRows + 1; }),
          "field rows is 549755813889; 0 to 549755813888 (kMaxContributionRows) are allowed");
  refused(After(ExamplePush(), [](auto& r) { r.rows = int64_t{1} << 62; }), "field rows is");
  refused(After(ExamplePush(),
                [](auto& r) {
                  r.decisions.resize(1);
                  r.decisions[0].step = 1;
                  r.decisions[0].contributions.resize(1);
                  r.decisions[0].contributions[0].worker = 0;
                  r.decisions[0].contributions[0].incarnation = 1;
                  r.decisions[0].contributions[0].sequence = 1;
                  r.decisions[0].contributions[0].rows = int64_t{1} << 62;
                }),
          "field contributions.rows is");
  wire::RestoreRequest restore;
  restore.caller = ExampleCaller();
  restore.workers.resize(1);
  restore.workers[0].incarnation = kMaxIncarnation + 1;
  refused(CheckRequest(restore), "field workers.incarnation is");
}

// Servers and clients compute the step or the sequence after the named one.
TEST(CheckRequest, StepsAndSequencesHaveALimit) {
  // `field_of` returns the address of the field in a request.
  const auto limited = [](const auto& request, const std::string& field, auto field_of) {
    EXPECT_OK(After(request, [&](auto& r) { *field_of(r) = kMaxStep; })) << field;
    EXPECT_THAT(After(request, [&](auto& r) { *field_of(r) = kMaxStep + 1; }),
                StatusIs(kInvalid, HasSubstr("field " + field + " is 4611686018427387905; ")));
    EXPECT_THAT(After(request, [&](auto& r) { *field_of(r) = kMaxStep + 1; }),
                StatusIs(kInvalid, HasSubstr(" to 4611686018427387904 (kMaxStep) are allowed")));
  };
  limited(ExampleCaller(), "caller.through", [](auto& r) { return &r.through; });
  wire::Caller beating = ExampleCaller();
  beating.__set_vitals({});
  limited(beating, "vitals.steps", [](auto& r) { return &r.vitals.steps; });
  limited(beating, "vitals.examples", [](auto& r) { return &r.vitals.examples; });
  EXPECT_FALSE(After(beating, [](auto& r) { r.vitals.examples = -1; }).ok());
  limited(ExampleHello(), "step", [](auto& r) { return &r.step; });
  limited(ExampleHello(), "begins_after_step", [](auto& r) { return &r.begins_after_step; });
  wire::PushRequest push = ExamplePush();
  push.rows = 1;
  push.decisions.resize(1);
  push.decisions[0].step = 1;
  push.decisions[0].contributions.resize(1);
  wire::Contribution& named = push.decisions[0].contributions[0];
  named.worker = 0;
  named.incarnation = named.sequence = named.rows = 1;
  limited(push, "sequence.sequence", [](auto& r) { return &r.sequence.sequence; });
  limited(push, "sequence.after", [](auto& r) { return &r.sequence.after; });
  limited(push, "step", [](auto& r) { return &r.step; });
  limited(push, "decisions.step", [](auto& r) { return &r.decisions[0].step; });
  limited(push, "contributions.sequence",
          [](auto& r) { return &r.decisions[0].contributions[0].sequence; });
  limited(ExampleAssign(), "sequence.sequence", [](auto& r) { return &r.sequence.sequence; });
  limited(ExamplePull(), "step", [](auto& r) { return &r.step; });
  limited(ExamplePull(), "decisions_after", [](auto& r) { return &r.decisions_after; });
  limited(ExamplePull(), "all_durable_step", [](auto& r) { return &r.all_durable_step; });
  wire::RestoreRequest restore;
  restore.caller = ExampleCaller();
  restore.workers.resize(1);
  limited(restore, "workers.sequence", [](auto& r) { return &r.workers[0].sequence; });
  wire::MoveRequest move;
  move.caller = ExampleCaller();
  move.action = wire::MoveAction::HOLD;
  move.variable = "w";
  move.map_version = 2;
  limited(move, "step", [](auto& r) { return &r.step; });
  wire::ChangeMembersRequest members;
  members.caller = ExampleCaller();
  members.action = wire::MembersAction::REMOVE;
  members.last_words.resize(1);
  limited(members, "last_words.applied", [](auto& r) { return &r.last_words[0].applied; });
}

}  // namespace
}  // namespace cairn
