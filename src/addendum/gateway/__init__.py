"""Who drives, when it is not our agent: the conversations of other clients, gone on with."""
