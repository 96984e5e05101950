CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1dedb8b7d00167nVs7H4ZGhAQk','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740292478,1794740293507,'{"role":"user","time":{"created":1794740292478},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1dedb8ec6001zabvI7iaaf2Y4X','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740293318,1794740293320,'{"parentID":"msg_1dedb8b7d00167nVs7H4ZGhAQk","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740293318}}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1dedb8ba5001D8cmVtQVCr20Er','msg_1dedb8b7d00167nVs7H4ZGhAQk','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740292522,1794740292524,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1dedb8fc0001yyNcXuPELmcLKg','msg_1dedb8ec6001zabvI7iaaf2Y4X','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740293568,1794740293570,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedb8fc4001qbr8hTR9x0TztP','msg_1dedb8ec6001zabvI7iaaf2Y4X','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740293572,1794740293643,'{"type":"text","text":"I start.","time":{"start":1794740293572,"end":1794740293642}}');
INSERT INTO "part" VALUES('prt_1dedb8fd0001AobAK1qcOX3LG5','msg_1dedb8ec6001zabvI7iaaf2Y4X','ses_e212474b4ffeYmjtqcnOzt9Ddo',1794740293584,1794740294024,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"metadata":{"output":""},"status":"running","input":{"command":"tail -f /dev/null"},"time":{"start":1794740293626}}}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e212474b4ffeYmjtqcnOzt9Ddo','global',NULL,NULL,'sunny-rocket','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0,0,0,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740292427,1794740293482,NULL,NULL);
