package activities_test

// guardTable is what every guard does in every state to a job that costs 40 and has 2 attempts. Each state shows its row:
// state and flags, then attempts/granted/attempt of the key. The columns are the call, its verdict and why, the row after
// it (= where nothing changed), what moved on the account, and what was written of it.
const guardTable = `
running: running 0/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 applied                running refunded 0/0/1                     refund 40    -
  refund, next failed    applied                running refunded 1/0/2                     refund 40    attempt_failed 1
  refund, next unknown   applied                running refunded 1/0/1                     refund 40    attempt_unknown 1
  refund, cancel         applied                running refunded cancel 0/0/1              refund 40    cancel_requested
  settle                 applied                succeeded 1/0/1                            -            -
  record next failed     applied                running 1/0/2                              -            attempt_failed 1
  record next unknown    applied                running 1/0/1                              -            attempt_unknown 1
  record last failed     applied                running 1/0/2                              -            attempt_failed 1
  park                   refused not_refunded   =                                          -            -
  close failed, next     applied                failed refunded 1/0/2                      refund 40    attempt_failed 1, closed
  close canceled         applied                canceled refunded 0/0/1                    refund 40    closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded 0/0/1                            -            resolution applied
  resolve write_off      applied                written_off refunded 0/0/1                 refund 40    resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded 0/0/1                            -            resolution applied
  event                  applied                =                                          -            outcome_recorded 9
running, 1 unknown: running 1/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 applied                running refunded 1/0/1                     refund 40    -
  refund, next failed    applied                running refunded 2/0/3                     refund 40    attempt_failed 2
  refund, next unknown   applied                running refunded 2/0/1                     refund 40    attempt_unknown 2
  refund, cancel         applied                running refunded cancel 1/0/1              refund 40    cancel_requested
  settle                 applied                succeeded 2/0/1                            -            -
  record next failed     applied                running 2/0/3                              -            attempt_failed 2
  record next unknown    applied                running 2/0/1                              -            attempt_unknown 2
  record last failed     applied                running 1/0/2                              -            attempt_failed 1
  park                   refused not_refunded   =                                          -            -
  close failed, next     applied                failed refunded 2/0/3                      refund 40    attempt_failed 2, closed
  close canceled         applied                canceled refunded 1/0/1                    refund 40    closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded 1/0/1                            -            resolution applied
  resolve write_off      applied                written_off refunded 1/0/1                 refund 40    resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded 1/0/1                            -            resolution applied
  event                  applied                =                                          -            outcome_recorded 9
running, 1 failed: running 1/0/2
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 applied                running refunded 1/0/2                     refund 40    -
  refund, next failed    applied                running refunded 2/0/3                     refund 40    attempt_failed 2
  refund, next unknown   applied                running refunded 2/0/2                     refund 40    attempt_unknown 2
  refund, cancel         applied                running refunded cancel 1/0/2              refund 40    cancel_requested
  settle                 applied                succeeded 2/0/2                            -            -
  record next failed     applied                running 2/0/3                              -            attempt_failed 2
  record next unknown    applied                running 2/0/2                              -            attempt_unknown 2
  record last failed     already                =                                          -            -
  park                   refused not_refunded   =                                          -            -
  close failed, next     applied                failed refunded 2/0/3                      refund 40    attempt_failed 2, closed
  close canceled         applied                canceled refunded 1/0/2                    refund 40    closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded 1/0/2                            -            resolution applied
  resolve write_off      applied                written_off refunded 1/0/2                 refund 40    resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded 1/0/2                            -            resolution applied
  event                  applied                =                                          -            outcome_recorded 9
refunded: running refunded 0/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                running refunded 1/0/2                     -            attempt_failed 1
  refund, next unknown   already                running refunded 1/0/1                     -            attempt_unknown 1
  refund, cancel         already                running refunded cancel 0/0/1              -            cancel_requested
  settle                 applied                succeeded refunded reclaimed 1/0/1         reclaim -40  -
  record next failed     applied                running refunded 1/0/2                     -            attempt_failed 1
  record next unknown    applied                running refunded 1/0/1                     -            attempt_unknown 1
  record last failed     applied                running refunded 1/0/2                     -            attempt_failed 1
  park                   refused attempts_left  =                                          -            -
  close failed, next     applied                failed refunded 1/0/2                      -            attempt_failed 1, closed
  close canceled         applied                canceled refunded 0/0/1                    -            closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed 0/0/1         reclaim -40  resolution applied
  resolve write_off      applied                written_off refunded 0/0/1                 -            resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed 0/0/1         reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
refunded, 2 failed: running refunded 2/0/3
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                running refunded 3/0/4                     -            attempt_failed 3
  refund, next unknown   already                running refunded 3/0/3                     -            attempt_unknown 3
  refund, cancel         already                running refunded cancel 2/0/3              -            cancel_requested
  settle                 applied                succeeded refunded reclaimed 3/0/3         reclaim -40  -
  record next failed     applied                running refunded 3/0/4                     -            attempt_failed 3
  record next unknown    applied                running refunded 3/0/3                     -            attempt_unknown 3
  record last failed     already                =                                          -            -
  park                   applied                dead_letter refunded 2/0/3                 -            dead_letter 2
  close failed, next     applied                failed refunded 3/0/4                      -            attempt_failed 3, closed
  close canceled         applied                canceled refunded 2/0/3                    -            closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed 2/0/3         reclaim -40  resolution applied
  resolve write_off      applied                written_off refunded 2/0/3                 -            resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed 2/0/3         reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
cancel asked: running refunded cancel 0/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                running refunded cancel 1/0/2              -            attempt_failed 1
  refund, next unknown   already                running refunded cancel 1/0/1              -            attempt_unknown 1
  refund, cancel         already                =                                          -            -
  settle                 applied                succeeded refunded reclaimed cancel 1/0/1  reclaim -40  -
  record next failed     applied                running refunded cancel 1/0/2              -            attempt_failed 1
  record next unknown    applied                running refunded cancel 1/0/1              -            attempt_unknown 1
  record last failed     applied                running refunded cancel 1/0/2              -            attempt_failed 1
  park                   refused attempts_left  =                                          -            -
  close failed, next     applied                failed refunded cancel 1/0/2               -            attempt_failed 1, closed
  close canceled         applied                canceled refunded cancel 0/0/1             -            closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed cancel 0/0/1  reclaim -40  resolution applied
  resolve write_off      applied                written_off refunded cancel 0/0/1          -            resolution applied
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed cancel 0/0/1  reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
dead_letter: dead_letter refunded 2/0/3
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                dead_letter refunded 3/0/4                 -            attempt_failed 3
  refund, next unknown   already                dead_letter refunded 3/0/3                 -            attempt_unknown 3
  refund, cancel         already                dead_letter refunded cancel 2/0/3          -            cancel_requested
  settle                 applied                succeeded refunded reclaimed 3/0/3         reclaim -40  -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     already                =                                          -            -
  park                   already                =                                          -            -
  close failed, next     applied                failed refunded 3/0/4                      -            attempt_failed 3, closed
  close canceled         applied                canceled refunded 2/0/3                    -            closed
  resolve retry          applied                running refunded 2/2/3                     -            resolution applied
  resolve deliver        applied                succeeded refunded reclaimed 2/0/3         reclaim -40  resolution applied
  resolve write_off      applied                written_off refunded 2/0/3                 -            resolution applied
  signal retry           applied                running refunded 2/2/3                     -            resolution applied
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed 2/0/3         reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
retry granted: running refunded 2/2/3
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                running refunded 3/2/4                     -            attempt_failed 3
  refund, next unknown   already                running refunded 3/2/3                     -            attempt_unknown 3
  refund, cancel         already                running refunded cancel 2/2/3              -            cancel_requested
  settle                 applied                succeeded refunded reclaimed 3/2/3         reclaim -40  -
  record next failed     applied                running refunded 3/2/4                     -            attempt_failed 3
  record next unknown    applied                running refunded 3/2/3                     -            attempt_unknown 3
  record last failed     already                =                                          -            -
  park                   refused attempts_left  =                                          -            -
  close failed, next     applied                failed refunded 3/2/4                      -            attempt_failed 3, closed
  close canceled         applied                canceled refunded 2/2/3                    -            closed
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed 2/2/3         reclaim -40  resolution applied
  resolve write_off      applied                written_off refunded 2/2/3                 -            resolution applied
  signal retry           already                =                                          -            -
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  refused id_reused      =                                          -            -
  event                  applied                =                                          -            outcome_recorded 9
succeeded: succeeded 1/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 refused delivered      =                                          -            -
  refund, next failed    refused delivered      =                                          -            -
  refund, next unknown   refused delivered      =                                          -            -
  refund, cancel         refused delivered      =                                          -            -
  settle                 already                =                                          -            -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     refused not_running    =                                          -            -
  park                   refused not_running    =                                          -            -
  close failed, next     refused closed         =                                          -            -
  close canceled         refused closed         =                                          -            -
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        refused wrong_state    =                                          -            -
  resolve write_off      refused wrong_state    =                                          -            -
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  refused wrong_state    =                                          -            -
  event                  applied                =                                          -            outcome_recorded 9
succeeded late: succeeded refunded reclaimed 1/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                =                                          -            -
  refund, next unknown   already                =                                          -            -
  refund, cancel         already                =                                          -            -
  settle                 already                =                                          -            -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     refused not_running    =                                          -            -
  park                   refused not_running    =                                          -            -
  close failed, next     refused closed         =                                          -            -
  close canceled         refused closed         =                                          -            -
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        refused wrong_state    =                                          -            -
  resolve write_off      refused wrong_state    =                                          -            -
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  refused wrong_state    =                                          -            -
  event                  applied                =                                          -            outcome_recorded 9
failed: failed refunded 1/0/2
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                =                                          -            -
  refund, next unknown   already                =                                          -            -
  refund, cancel         already                =                                          -            -
  settle                 applied                succeeded refunded reclaimed 2/0/2         reclaim -40  -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     already                =                                          -            -
  park                   refused not_running    =                                          -            -
  close failed, next     already                =                                          -            -
  close canceled         refused closed         =                                          -            -
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed 1/0/2         reclaim -40  resolution applied
  resolve write_off      refused wrong_state    =                                          -            -
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed 1/0/2         reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
canceled: canceled refunded cancel 0/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                =                                          -            -
  refund, next unknown   already                =                                          -            -
  refund, cancel         already                =                                          -            -
  settle                 applied                succeeded refunded reclaimed cancel 1/0/1  reclaim -40  -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     refused not_running    =                                          -            -
  park                   refused not_running    =                                          -            -
  close failed, next     refused closed         =                                          -            -
  close canceled         already                =                                          -            -
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed cancel 0/0/1  reclaim -40  resolution applied
  resolve write_off      refused wrong_state    =                                          -            -
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed cancel 0/0/1  reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
written_off: written_off refunded 0/0/1
  charge                 already                =                                          -            -
  charge of another cost refused conflict       =                                          -            -
  refund                 already                =                                          -            -
  refund, next failed    already                =                                          -            -
  refund, next unknown   already                =                                          -            -
  refund, cancel         already                =                                          -            -
  settle                 applied                succeeded refunded reclaimed 1/0/1         reclaim -40  -
  record next failed     refused not_running    =                                          -            -
  record next unknown    refused not_running    =                                          -            -
  record last failed     refused not_running    =                                          -            -
  park                   refused not_running    =                                          -            -
  close failed, next     refused closed         =                                          -            -
  close canceled         refused closed         =                                          -            -
  resolve retry          refused wrong_state    =                                          -            -
  resolve deliver        applied                succeeded refunded reclaimed 0/0/1         reclaim -40  resolution applied
  resolve write_off      already                =                                          -            -
  signal retry           refused wrong_state    =                                          -            resolution refused
  signal invalid         refused invalid        =                                          -            resolution refused
  update invalid         refused invalid        =                                          -            -
  resolve, id of signal  applied                succeeded refunded reclaimed 0/0/1         reclaim -40  resolution applied
  event                  applied                =                                          -            outcome_recorded 9
`
