#include "lab/trial/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>

#include "core/error.hpp"
#include "lab/measure/contender.hpp"
#include "lab/trial/places.hpp"

namespace attune::lab {
namespace {

constexpr int answer_descriptor = 3;  // in the process
constexpr int look_milliseconds = 100;

bool needs_python(const nlohmann::json& job) {
  const auto is_callable = [](const nlohmann::json& entrant) { return entrant.at("callable") != ""; };
  return job.contains("entrant") ? is_callable(job.at("entrant"))
                                 : std::ranges::any_of(job.at("entrants"), is_callable);
}

std::vector<std::string> command_for(const nlohmann::json& job, const TrialOptions& options) {
  if (!needs_python(job)) {
    std::vector<std::string> command = own_command();
    command.insert(command.end(), {"trial", std::to_string(answer_descriptor)});
    return command;
  }
  const std::string engine = library_in(own_folder(), "libattune_lab_engine.so", "a function of Python");
  return {options.python, "-m", "attune.lab", "trial", "--engine", engine, std::to_string(answer_descriptor)};
}

// This process's, with the package where Python finds it. It is not set here: other threads read it meanwhile.
std::vector<std::string> environment_for(const nlohmann::json& job) {
  constexpr std::string_view name = "PYTHONPATH=";
  const std::string path = needs_python(job) ? python_path_with(package_beside(own_folder())) : "";
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each)
    if (path.empty() || !std::string_view(*each).starts_with(name)) all.emplace_back(*each);
  if (!path.empty()) all.push_back(std::string(name) + path);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

// In a group of its own, so that whatever it starts ends with it.
class TrialProcess {
 public:
  TrialProcess(std::vector<std::string> command, std::vector<std::string> environment) {
    int questions[2], ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, questions) != 0)
      fail(ATTUNE_INTERNAL_ERROR, "no socket can be made: {}", std::strerror(errno));
    questions_ = questions[0];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      const int why = errno;
      close(questions[0]);
      close(questions[1]);
      fail(ATTUNE_INTERNAL_ERROR, "no pipe can be made: {}", std::strerror(why));
    }
    answers_ = ends[0];
    const std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // What foreign code prints is a remark, never part of this command's output. The pipe's end is moved last: it may
    // have the number of the answers itself, which then must lose its "close on exec".
    posix_spawn_file_actions_adddup2(&actions, questions[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], answer_descriptor);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(questions[1]);
    close(ends[1]);
    if (error == 0) return;
    close(questions_);
    close(answers_);
    fail(ATTUNE_NO_DEVICE, "cannot start '{}': {}", command[0], std::strerror(error));
  }
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;
  ~TrialProcess() {
    end();
    close(questions_);
    close(answers_);
  }

  // A process that is gone is found out by whoever waits for its answer.
  void ask(const nlohmann::json& job) const {
    const std::string text = job.dump() + "\n";
    for (size_t done = 0; done < text.size();) {
      const ssize_t sent = send(questions_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) return;
      done += sent < 0 ? 0 : static_cast<size_t>(sent);
    }
  }

  // What it has written by now, after at most `look_milliseconds`.
  std::string read_some() const {
    pollfd ready{answers_, POLLIN, 0};
    if (poll(&ready, 1, look_milliseconds) <= 0) return "";
    char buffer[65536];
    const ssize_t got = read(answers_, buffer, sizeof buffer);
    return {buffer, got > 0 ? static_cast<size_t>(got) : 0};
  }

  bool ended() {
    if (!status_ && waitpid(pid_, &status_.emplace(), WNOHANG) != pid_) status_.reset();
    return status_.has_value();
  }

  std::string how_it_ended() const {
    if (WIFSIGNALED(*status_))
      return fmt::format("crashed: signal {} ({})", WTERMSIG(*status_), strsignal(WTERMSIG(*status_)));
    return fmt::format("ended the process with exit status {}", WEXITSTATUS(*status_));
  }

  void end() {
    kill(-pid_, SIGKILL);
    int status = 0;
    while (!status_ && waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!status_) status_ = status;
  }

 private:
  pid_t pid_ = 0;
  int questions_ = -1, answers_ = -1;
  std::optional<int> status_;
};

namespace {

// Takes whole lines off the text.
std::vector<nlohmann::json> lines_of(std::string& text) {
  std::vector<nlohmann::json> lines;
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    nlohmann::json line = nlohmann::json::parse(text.substr(0, end), nullptr, false);
    if (line.is_object()) lines.push_back(std::move(line));
  }
  return lines;
}

class Conversation {
 public:
  Conversation(TrialProcess& process, const TrialOptions& options, const TrialProgress& progress)
      : options_(options), progress_(progress), process_(process) {}

  TrialAnswer about(const nlohmann::json& job) {
    process_.ask(job);
    for (bool more = true; more;) {
      const bool ended = process_.ended();  // before the last look, or what it wrote meanwhile is lost
      text_ += process_.read_some();
      for (const nlohmann::json& line : lines_of(text_)) hear(line);
      if (answered()) return std::move(answer_);
      if (ended) {
        answer_.lost = process_.how_it_ended();
        more = false;
      } else if (at_work_.at >= 0 && steady_clock().now() - heard_ > options_.limit_seconds) {
        answer_.lost = fmt::format("hung: one step took longer than {:g} s (--limit)", options_.limit_seconds);
        more = false;
      }
    }
    answer_.at = last_at_work_;
    return std::move(answer_);
  }

 private:
  bool answered() const { return answer_.done || answer_.rounds || answer_.status; }

  void hear(const nlohmann::json& line) {
    heard_ = steady_clock().now();
    if (line.contains("outcome")) {
      answer_.outcomes.push_back(outcome_from_json(line.at("outcome")));
    } else if (line.contains("done")) {
      answer_.done = true;
    } else if (line.contains("rounds")) {
      answer_.rounds = rounds_from_json(line.at("rounds"));
    } else if (line.contains("error")) {
      answer_.lost = line.at("error");
      answer_.status = static_cast<attune_status>(line.at("status").get<int>());
      answer_.at = last_at_work_;
    } else {
      at_work_ = {line.at("at"), line.at("contender"), line.at("round")};
      if (at_work_.at >= 0) last_at_work_ = at_work_.at;
      if (progress_) progress_(at_work_);
    }
  }

  const TrialOptions& options_;
  const TrialProgress& progress_;
  TrialProcess& process_;
  std::string text_;
  TrialAnswer answer_;
  AtWork at_work_;
  int last_at_work_ = -1;
  double heard_ = steady_clock().now();
};

// What a process is kept for: nobody else's code has run in it.
std::string purpose_of(const nlohmann::json& job) {
  return fmt::format("{} {} {}", job.at("task").get<std::string>(), job.at("backend").get<std::string>(),
                     (job.contains("entrant") ? job.at("entrant") : job.at("entrants")).dump());
}

// Code that is wrong may have written anywhere.
bool unharmed(const TrialAnswer& answer) {
  return answer.rounds || (answer.done && std::ranges::all_of(answer.outcomes, &Outcome::ok));
}

}  // namespace

Trials::Trials(TrialOptions options, bool keep) : options_(std::move(options)), keep_(keep) {}
Trials::~Trials() = default;

std::unique_ptr<TrialProcess> Trials::process_for(const nlohmann::json& job) {
  const std::lock_guard guard(lock_);
  if (auto waiting = waiting_.extract(purpose_of(job))) return std::move(waiting.mapped());
  return std::make_unique<TrialProcess>(command_for(job, options_), environment_for(job));
}

void Trials::put_back(std::unique_ptr<TrialProcess> process, const nlohmann::json& job, const TrialAnswer& answer) {
  if (!keep_ || !unharmed(answer)) return;
  const std::lock_guard guard(lock_);
  waiting_.emplace(purpose_of(job), std::move(process));
}

TrialAnswer Trials::run(const nlohmann::json& job, const TrialProgress& progress) {
  std::unique_ptr<TrialProcess> process = process_for(job);
  TrialAnswer answer = Conversation(*process, options_, progress).about(job);
  put_back(std::move(process), job, answer);
  return answer;
}

std::vector<TrialAnswer> Trials::run_all(const std::vector<nlohmann::json>& jobs, size_t at_once,
                                         const std::function<void()>& meanwhile, const TrialsProgress& progress) {
  std::vector<TrialAnswer> answers(jobs.size());
  std::mutex telling;
  const auto telling_of = [&](size_t i) {
    return [&, i](const AtWork& now) {
      const std::lock_guard guard(telling);
      if (progress) progress(i, now);
    };
  };
  if (at_once <= 1) {
    if (meanwhile) meanwhile();
    for (size_t i = 0; i < jobs.size(); ++i) answers[i] = run(jobs[i], telling_of(i));
    return answers;
  }
  // A process ends with the thread that started it (PR_SET_PDEATHSIG). So this one starts them; they wait for their
  // jobs.
  std::vector<std::unique_ptr<TrialProcess>> processes;
  for (const nlohmann::json& job : jobs) processes.push_back(process_for(job));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < jobs.size();) {
      answers[i] = Conversation(*processes[i], options_, telling_of(i)).about(jobs[i]);
      put_back(std::move(processes[i]), jobs[i], answers[i]);
    }
  };
  std::vector<std::future<void>> workers;
  for (size_t i = 0; i < std::min(at_once, jobs.size()); ++i) workers.push_back(std::async(std::launch::async, work));
  if (meanwhile) meanwhile();
  for (std::future<void>& worker : workers) worker.get();
  return answers;
}

TrialAnswer run_trial(const nlohmann::json& job, const TrialOptions& options, const TrialProgress& progress) {
  return Trials(options).run(job, progress);
}

std::vector<Outcome> judge_apart(const CheckJob& job, const TrialOptions& options) {
  TrialAnswer answer = run_trial(to_json(job), options);
  std::vector<Outcome> outcomes = std::move(answer.outcomes);
  if (!answer.done && outcomes.size() < job.cases.size()) {
    const Case& what = job.cases[outcomes.size()];
    Outcome& lost = outcomes.emplace_back(Outcome{what, {}, {}, {}, {}});
    lost.of.kernel = job.entrant.name;
    lost.judgement.ok = false;
    lost.judgement.failure = answer.lost;
  }
  for (Outcome& outcome : outcomes) outcome.of.option = job.entrant.option();
  return outcomes;
}

}  // namespace attune::lab
