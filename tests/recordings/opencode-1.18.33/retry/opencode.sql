CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1dedb64fe00175mMZiLVgtLF0W','ses_e21249b46ffei5ksmcEMvIbuGh',1794740282622,1794740283677,'{"role":"user","time":{"created":1794740282622},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1dedb68f7001yKH7Wh2OXaPEZ3','ses_e21249b46ffei5ksmcEMvIbuGh',1794740283639,1794740285760,'{"parentID":"msg_1dedb64fe00175mMZiLVgtLF0W","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740283639,"completed":1794740285759},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1dedb6505001HzcM6AeYy1aXfq','msg_1dedb64fe00175mMZiLVgtLF0W','ses_e21249b46ffei5ksmcEMvIbuGh',1794740282632,1794740282634,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1dedb7120001w2VezpIP7rBv31','msg_1dedb68f7001yKH7Wh2OXaPEZ3','ses_e21249b46ffei5ksmcEMvIbuGh',1794740285728,1794740285730,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedb71290010JoxIse0zIsRj8','msg_1dedb68f7001yKH7Wh2OXaPEZ3','ses_e21249b46ffei5ksmcEMvIbuGh',1794740285738,1794740285748,'{"type":"text","text":"Works.","time":{"start":1794740285738,"end":1794740285747}}');
INSERT INTO "part" VALUES('prt_1dedb7138001HHfhkowQiY5wsT','msg_1dedb68f7001yKH7Wh2OXaPEZ3','ses_e21249b46ffei5ksmcEMvIbuGh',1794740285753,1794740285754,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e21249b46ffei5ksmcEMvIbuGh','global',NULL,NULL,'cosmic-cabin','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0006,100,20,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740282553,1794740285782,NULL,NULL);
