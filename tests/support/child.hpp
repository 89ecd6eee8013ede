// Forked children, and what they find. Tests that fork are not named after threads: ThreadSanitizer allows a child no
// new ones.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace attune::test {

class Child {
 public:
  // Forks; the child ends after `succeeds`, and by SIGALRM if that hangs.
  explicit Child(const std::function<bool()>& succeeds) : pid_(fork()) {
    if (pid_ != 0) return;
    alarm(20);
    bool succeeded = false;
    try {
      succeeded = succeeds();
    } catch (...) {  // must not reach the parent's code
    }
    _exit(succeeded ? 0 : 1);
  }

  // As waitpid gives it, once the child has ended: 0 if it succeeded. Once.
  int status() const {
    int status = 0;
    return waitpid(pid_, &status, 0) == pid_ ? status : -1;
  }

 private:
  const pid_t pid_;
};

inline int status_of_child(const std::function<bool()>& succeeds) { return Child(succeeds).status(); }

}  // namespace attune::test
